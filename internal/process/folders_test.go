package process_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/process"
)

// A killed castle leaves a folder that nobody has locked; a live one has locked its own.
func TestHoldRemovesOnlyFoldersOfKilledCastles(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	folder := func(name string, mode os.FileMode, age time.Duration) string {
		dir := filepath.Join(temp, name)
		at := time.Now().Add(-age)
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "socket"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const killed, live = "castle-20260301T120000.000-create-000001", "castle-20260301T120000.000-plan-000002"
	gone := []string{folder(killed, 0o700, time.Hour), folder("castle-providers-12345", 0o700, time.Hour)}
	stay := []string{
		folder("castle-20260301T120000.000-create-000003", 0o700, 0), // it may be locked in a moment
		folder("castle-20260301T120000.000-create-000004", 0o755, time.Hour),
		folder("castle-notes", 0o700, time.Hour), folder("other", 0o700, time.Hour),
	}
	held := folder(live, 0o700, time.Hour)
	fd, err := unix.Open(held, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(fd, unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(temp, "castle-20260301T120000.000-create-000005")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	mine, err := process.TempDir("providers")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range gone {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	for _, dir := range append(stay, held, elsewhere, link, mine) {
		if _, err := os.Lstat(dir); err != nil {
			t.Errorf("%s is gone: %v", dir, err)
		}
	}
	if err := unix.Close(fd); err != nil { // it was killed
		t.Fatal(err)
	}
	if _, err := process.TempDir("providers"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(held); !os.IsNotExist(err) {
		t.Errorf("%s is left after its castle has ended: %v", held, err)
	}
	if _, err := os.Lstat(mine); err != nil {
		t.Errorf("another one has removed %s: %v", mine, err)
	}
}
