package ownfile

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// operations are all that open what a path names.
var operations = map[string]func(path string) error{
	"read": func(path string) error { _, err := ReadFile(path); return err },
	"append": func(path string) error {
		_, err := OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		return err
	},
	"lock": func(path string) error {
		_, err := OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		return err
	},
	"chmod": func(path string) error { return Chmod(path, 0o600) },
	"list":  func(path string) error { _, err := ReadDir(path); return err },
	"file": func(path string) error {
		_, err := FS(filepath.Dir(path)).Open(filepath.Base(path))
		return err
	},
	"folder of": func(path string) error { _, err := ReadDir(filepath.Dir(path)); return err },
}

// plant makes one of each kind in a folder, and returns what each is called.
func plant(t *testing.T, dir string) map[string]string {
	t.Helper()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whatever was done to the kinds
		data, err := os.ReadFile(outside)
		info, unknown := os.Stat(outside)
		if err := errors.Join(err, unknown); err != nil || string(data) != "precious" ||
			info.Mode() != 0o644 {
			t.Errorf("behind the link: %q, %v, %v", data, info.Mode(), err)
		}
	})
	at := func(name string) string { return filepath.Join(dir, name, name) }
	for _, name := range []string{"link", "pipe", "socket", "device"} {
		if err := os.Mkdir(filepath.Dir(at(name)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("socket"), Net: "unix"})
	err = errors.Join(err, os.Symlink(outside, at("link")), unix.Mkfifo(at("pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	kinds := map[string]string{"link": "a symbolic link", "pipe": "a named pipe",
		"socket": "a device or a socket"}
	if err := unix.Mknod(at("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Logf("without a device: %v", err)
	} else {
		kinds["device"] = "a device or a socket"
	}
	return kinds
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	dir := Resolve(t.TempDir())
	for name, kind := range plant(t, dir) {
		path := filepath.Join(dir, name, name)
		for operation, do := range operations {
			if operation == "list" && name != "link" {
				continue // it is no folder either: the next test
			}
			var refused *RefusedError
			err := do(path)
			if !errors.As(err, &refused) || refused.Path != path || refused.Kind != kind {
				t.Errorf("%s %s: %v", operation, name, err)
			}
		}
		if err := do(path, Remove, RemoveAll); err != nil { // of the link itself
			t.Errorf("remove %s: %v", name, err)
		}
	}
}

func do(path string, all ...func(string) error) (err error) {
	for _, one := range all {
		err = errors.Join(err, one(path))
	}
	return err
}

func TestNoPartOfAPathMayBeALink(t *testing.T) {
	dir, elsewhere := Resolve(t.TempDir()), Resolve(t.TempDir())
	link, target := filepath.Join(dir, "link"), filepath.Join(elsewhere, "file")
	if err := errors.Join(os.Symlink(elsewhere, link), os.WriteFile(target, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	all := map[string]func(string) error{
		"remove": Remove, "remove all": RemoveAll,
		"move away": func(path string) error { return Rename(path, filepath.Join(dir, "moved")) },
		"move here": func(path string) error { return Rename(dir, path) },
		"in":        func(path string) error { return In(path, func(string) error { return nil }) },
	}
	maps.Copy(all, operations)
	for name, operation := range all {
		var refused *RefusedError
		if err := operation(filepath.Join(link, "file")); !errors.As(err, &refused) || refused.Path != link {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) != 1 {
		t.Errorf("behind the link: %v, %v", entries, err)
	}
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	path := filepath.Join(Resolve(t.TempDir()), "file")
	if err := os.WriteFile(path, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Skipf("only root can give a file away: %v", err)
	}
	for name, operation := range operations {
		err := operation(path)
		if name == "list" || name == "folder of" {
			continue // it is no folder, and the folder is ours
		}
		failed, is := errors.AsType[*fs.PathError](err)
		if !is || !errors.Is(err, syscall.EPERM) || failed.Path != path {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAHardLinkIsOnlyRead(t *testing.T) {
	dir := Resolve(t.TempDir())
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("ours"), 0o600), os.Link(file, link)); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(link); err != nil || string(data) != "ours" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := OpenFile(link, os.O_RDWR, 0); !errors.As(err, new(*RefusedError)) {
		t.Errorf("opened for writing, which changes the file elsewhere: %v", err)
	}
}

func TestResolve(t *testing.T) {
	dir := Resolve(t.TempDir())
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link: "real", link + "/a/b": "real/a/b", dir + "/a/../link": "real", dir + "/none/link": "none/link",
	} {
		if got := Resolve(path); got != filepath.Join(dir, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestErrorsNameThePath(t *testing.T) {
	dir := Resolve(t.TempDir())
	missing := filepath.Join(dir, "missing")
	for name, err := range map[string]error{
		"remove": Remove(missing), "rename": Rename(missing, filepath.Join(dir, "other")),
		"open": do(missing, operations["read"]),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
