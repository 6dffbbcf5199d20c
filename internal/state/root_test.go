package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ephemeral-castle/castle/internal/ownfile"
)

func TestFixIsOfTheStateDirectoryOnly(t *testing.T) {
	root := t.TempDir()
	inside := filepath.Join(root, "blue/proxmox/lock")
	at := func(path string, number syscall.Errno) error {
		return fmt.Errorf("stage cni: %w", &fs.PathError{Op: "write", Path: path, Err: number})
	}
	renamed := &os.LinkError{Op: "rename", Old: inside + ".1", New: inside, Err: syscall.EDQUOT}
	for _, c := range []struct {
		err  error
		want string // what the fix contains; it is empty without
	}{
		{at(inside, syscall.ENOSPC), root + " is full: make room there"},
		{at("/elsewhere/state", syscall.ENOSPC), ""},
		{at(root+"2/state", syscall.ENOSPC), ""},
		{renamed, root + " is full: make room there"},
		{at(inside, syscall.EROFS), root + " is read-only: make it writable"},
		{at(inside, syscall.ENOENT), ""},
		{at(inside, syscall.EACCES), "castle may not use " + root + ": chmod -R u+rwX"},
		{at("/elsewhere/state", syscall.EACCES), ""},
		{errors.New("save state: open " + inside + ": no space left on device"), "is full"},
		{errors.New("upload: no space left on device\n  log: " + inside), ""}, // in the datacenter
		{errors.New("upload: read-only file system\n  log: " + inside), ""},
	} {
		got := Fix(c.err, root)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if got := Fix(at(inside, syscall.ENOSPC), ""); got != "" {
		t.Errorf("without a root: %q", got)
	}
}

func TestClustersAreNotOverlooked(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "stray"), nil)
	for _, platform := range []string{"proxmox", "metal"} {
		if _, err := Open(root, "blue", platform); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := Clusters(root); err != nil || strings.Join(all, " ") != "blue/metal blue/proxmox" {
		t.Errorf("%q, %v", all, err)
	}
	if all, err := Clusters(filepath.Join(root, "missing")); err != nil || len(all) != 0 {
		t.Errorf("%q, %v", all, err)
	}
	loop := filepath.Join(root, "loop") // unreadable, for root too
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if _, err := Clusters(root); !errors.As(err, new(*ownfile.RefusedError)) {
		t.Errorf("got %v", err)
	}
}
