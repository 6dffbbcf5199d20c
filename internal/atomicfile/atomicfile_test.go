package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestWriteLeavesTheOldContentWhenItFails(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "folder") // a rename cannot replace a folder that is not empty
	if err := os.MkdirAll(filepath.Join(target, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(target, []byte("new")); err == nil {
		t.Fatal("no error")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestFilesAndFoldersGetTheirModeWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o277} {
		dir := filepath.Join(t.TempDir(), "folder")
		file, shared, log := filepath.Join(dir, "file"), filepath.Join(dir, "shared"),
			filepath.Join(dir, "log")
		old := syscall.Umask(umask)
		err := errors.Join(MkdirPrivate(dir), Write(file, []byte("old")), Write(file, []byte("new")),
			Create(shared, []byte("code"), 0o644))
		f, appendErr := Append(log)
		syscall.Umask(old)
		if err := errors.Join(err, appendErr); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]os.FileMode{dir: 0o700, file: 0o600, shared: 0o644, log: 0o600} {
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("umask %#o: %s has mode %v, want %v (%v)", umask, path, info.Mode(), want, err)
			}
		}
		if data, err := os.ReadFile(file); err != nil || string(data) != "new" {
			t.Errorf("file: %q, %v", data, err)
		}
	}
}

func TestCreateRefusesAFileThatExists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Create(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, []byte("second"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want fs.ErrExist", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "first" {
		t.Errorf("file: %q, %v", data, err)
	}
}

func TestConcurrentWritesLeaveOneContentWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "found.json")
	var all sync.WaitGroup
	for _, letter := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			for range 20 {
				if err := Write(path, []byte(strings.Repeat(letter, 1000))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		t.Fatalf("%q, %v", data, err)
	}
	if got := string(data); got != strings.Repeat(got[:1], 1000) {
		t.Errorf("mixed: %q", got)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
