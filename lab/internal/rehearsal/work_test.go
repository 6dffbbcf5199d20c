package rehearsal

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWhatAKilledRehearsalLeftGoes keeps live and kept work directories, and foreign files.
func TestWhatAKilledRehearsalLeftGoes(t *testing.T) {
	environ := []string{"XDG_CACHE_HOME=" + t.TempDir()}
	folder := func(name string) string {
		t.Helper()
		work, err := workDirectory(environ, name)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(work, "plan.json"), nil, 0o600))
		return work
	}
	occupied := func(name string) (string, *os.File) {
		t.Helper()
		work := folder(name)
		f, err := occupy(work)
		check(t, err)
		return work, f
	}
	killed, held := occupied("killed")
	check(t, held.Close())
	alive, held := occupied("alive")
	defer held.Close() //nolint:errcheck // a test's
	kept := folder("kept")
	own, held := occupied("own")
	defer held.Close() //nolint:errcheck // a test's
	sweep(own, func(string) {})
	for path, want := range map[string]bool{killed: false, alive: true, kept: true, own: true} {
		if _, err := os.Stat(filepath.Join(path, "plan.json")); (err == nil) != want {
			t.Errorf("%s: there: %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
}
