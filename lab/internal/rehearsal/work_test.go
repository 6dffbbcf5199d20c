package rehearsal

import (
	"os"
	"path/filepath"
	"testing"
	"time"
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

// TestLogsOfTheNewestRehearsalsStay keeps what castle has named, for as many rehearsals as mostLogs.
func TestLogsOfTheNewestRehearsalsStay(t *testing.T) {
	cache, err := os.MkdirTemp("", "cache-") // in t.TempDir's longer one there would be no work directory
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(cache)) })
	environ := []string{"XDG_CACHE_HOME=" + cache}
	var all []string
	for i := range mostLogs + 1 {
		work, err := workDirectory(environ, "blue")
		check(t, err)
		held, err := occupy(work)
		check(t, err)
		cluster := filepath.Join(work, "state", "blue", "proxmox")
		for _, file := range []string{
			filepath.Join(cluster, "runs", "1", "receipt.json"),
			filepath.Join(cluster, "stages", "keys", "state"),
			filepath.Join(work, "programs", "terraform"), filepath.Join(work, "datacenter.log"),
		} {
			check(t, os.MkdirAll(filepath.Dir(file), 0o700))
			check(t, os.WriteFile(file, nil, 0o600))
		}
		sweep(work, func(text string) { t.Errorf("sweep reported %q", text) })
		p := plan{Work: work, Survey: survey{Name: "blue", Platform: "proxmox"}}
		check(t, p.keepLogs())
		check(t, held.Close())
		at := time.Now().Add(time.Duration(i-mostLogs-1) * time.Hour)
		check(t, os.Chtimes(filepath.Join(work, logsName), at, at))
		all = append(all, work)
	}
	for i, work := range all {
		for name, want := range map[string]bool{
			"state/blue/proxmox/runs/1/receipt.json": i > 0, "datacenter.log": i > 0,
			"state/blue/proxmox/stages": false, "programs": false, lockName: false,
		} {
			if _, err := os.Stat(filepath.Join(work, name)); (err == nil) != want {
				t.Errorf("rehearsal %d: %s: there: %v, want %v", i, name, err == nil, want)
			}
		}
	}
}
