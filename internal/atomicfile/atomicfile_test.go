package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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

func TestUpdateReplacesOnlyWhatDiffers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	replaced := func(data string) bool {
		t.Helper()
		before, _ := os.Stat(path)
		if err := Update(path, []byte(data)); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(path)
		if err != nil || after.Mode() != 0o600 {
			t.Fatalf("%v, %v", after.Mode(), err)
		}
		if content, err := os.ReadFile(path); err != nil || string(content) != data {
			t.Fatalf("it holds %q (%v), not %q", content, err, data)
		}
		return !os.SameFile(before, after)
	}
	if !replaced("first") || replaced("first") || !replaced("other") || !replaced("") || replaced("") {
		t.Error("replaced a file with the same content, or kept another one")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if !replaced("") {
		t.Error("kept a file that others can read")
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

func TestSweepRemovesOnlyWhatThisPackageMakes(t *testing.T) {
	dir := t.TempDir()
	folder, err := MkdirTemp(dir, "looking")
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.CreateTemp(dir, temporaryName("record.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := written.Close(); err != nil {
		t.Fatal(err)
	}
	kept := []string{".backup.json.20261122", ".castle_override.tf.bak", ".env", ".notes.123456789",
		".record.json.castle-new", "castle-1", "record.json", "record.json.castle-1",
		"sub/.terraform.lock.hcl"}
	swept := []string{"sub/deep/.x.tfstate.castle-1", folder + "/state", written.Name()}
	for _, name := range append(slices.Clone(kept), swept...) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	var left []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil || !slices.Equal(left, kept) {
		t.Errorf("left: %q, %v", left, err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
	if err := Sweep(filepath.Join(dir, "missing")); err != nil {
		t.Error(err)
	}
}

// A castle that only reads writes a file, too: the layout. One that holds the lock may sweep meanwhile.
func TestWriteSurvivesASweep(t *testing.T) {
	dir := t.TempDir()
	for n := range 50 {
		swept := make(chan error)
		go func() { swept <- Sweep(dir) }()
		err := Write(filepath.Join(dir, "layout"), []byte{byte(n)})
		if err := errors.Join(err, <-swept); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCreateLeavesNothingWhenItFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
	full := limit
	full.Cur = 1 << 20 // more than anything else that the test binary writes meanwhile
	if err := errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full)); err != nil {
		t.Fatal(err)
	}
	created := Create(path, make([]byte, full.Cur+1), 0o600)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(created, syscall.EFBIG) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("created: %v; %v", created, err)
	}
}
