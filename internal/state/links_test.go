package state

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// open opens the state directory of blue, with a stage.
func openBlue(t *testing.T, root string) *Dir {
	t.Helper()
	d, err := Open(root, "blue", "proxmox")
	if err == nil {
		err = d.Stage("seed").SetRecord(Record{Name: "seed", Layer: "secrets"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheDirectoryIsRefusedWithALinkOrAPipe(t *testing.T) {
	d := openBlue(t, t.TempDir())
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, []byte("precious"))
	for _, name := range []string{"lock", "layout", "stages", "runs", "kubeconfig", "talosconfig",
		"store.json",
		"store.lock", "recreate.json", "restore.json", "births.json",
		"proved.jsonl", "diverged", "archive", "stages/other", "stages/seed",
		"stages/seed/terraform.tfstate", "stages/seed/record.json", "stages/seed/intent.jsonl",
		"stages/seed/snapshots", "stages/seed/module", "stages/seed/work", "stages/seed/machines.json"} {
		path := filepath.Join(d.path, name)
		for kind, plant := range map[string]func() error{
			"a symbolic link": func() error { return os.Symlink(outside, path) },
			"a named pipe":    func() error { return unix.Mkfifo(path, 0o600) },
		} {
			there := exists(path)
			if there {
				rename(t, path, path+".away")
			}
			if err := plant(); err != nil {
				t.Fatal(err)
			}
			var refused *ownfile.RefusedError
			_, err := Open(filepath.Dir(filepath.Dir(d.path)), "blue", "proxmox")
			isFolder := errors.Is(err, syscall.ENOTDIR) // of stages and runs
			if !errors.As(err, &refused) && !isFolder || refused != nil && (refused.Path != path ||
				refused.Kind != kind) {
				t.Errorf("%s at %s: %v", kind, name, err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if there {
				rename(t, path+".away", path)
			}
		}
	}
	if info, err := os.Stat(outside); err != nil || info.Size() != 8 {
		t.Errorf("behind the links: %v, %v", info, err)
	}
	openBlue(t, filepath.Dir(filepath.Dir(d.path)))
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestTheStateDirectoryMayBeALink(t *testing.T) {
	real, link := ownfile.Resolve(t.TempDir()), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if d := openBlue(t, link); d.Path() != filepath.Join(real, "blue", "proxmox") {
		t.Errorf("the directory is %s", d.Path())
	}
	if root, err := Root(link, nil); err != nil || root != real {
		t.Errorf("the root is %s, %v", root, err)
	}
	rename(t, filepath.Join(real, "blue"), filepath.Join(real, "green"))
	if err := os.Symlink("green", filepath.Join(real, "blue")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link, "blue", "proxmox"); !errors.As(err, new(*ownfile.RefusedError)) {
		t.Errorf("a link below it: %v", err)
	}
	if _, err := Clusters(real); !errors.As(err, new(*ownfile.RefusedError)) {
		t.Errorf("a link below it: %v", err)
	}
}

// A link that appears after Open, when a run has begun, is refused by whatever uses the file.
func TestALinkThatAppearsLaterIsRefused(t *testing.T) {
	d := openBlue(t, t.TempDir())
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, []byte("precious"))
	s, run := d.Stage("seed"), d.NewRun("create")
	for path, use := range map[string]func() error{
		filepath.Join(d.path, "lock"):         func() error { _, err := d.Lock(run.ID); return err },
		filepath.Join(d.path, "proved.jsonl"): func() error { _, err := d.Proofs().Read(); return err },
		s.StatePath():                         func() error { _, err := s.State(); return err },
		s.Intent().path():                     func() error { _, err := s.Intent().Read(); return err },
		run.journalPath():                     func() error { _, err := run.Journal(); return err },
		run.LogPath("seed"):                   func() error { _, err := run.Log("seed"); return err },
		filepath.Join(s.Work(), "errored.tfstate"): func() error {
			_, err := s.Copies().Errored()
			return err
		},
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, path); err != nil {
			t.Fatal(err)
		}
		var refused *ownfile.RefusedError
		if err := use(); !errors.As(err, &refused) || refused.Path != path {
			t.Errorf("%s: %v", path, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "precious" {
		t.Errorf("behind the links: %q, %v", data, err)
	}
}

func TestADirectoryOfAnotherUserIsRefused(t *testing.T) {
	d := openBlue(t, t.TempDir())
	for _, path := range []string{d.stages(), d.Stage("seed").Dir(), filepath.Join(d.path, "layout")} {
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Skipf("only root can give a file away: %v", err)
		}
		root := filepath.Dir(filepath.Dir(d.path))
		_, err := Open(root, "blue", "proxmox")
		if !errors.Is(err, syscall.EPERM) || Fix(err, root) == "" {
			t.Errorf("%s: %v, %q", path, err, Fix(err, root))
		}
		if err := os.Chown(path, os.Geteuid(), os.Getegid()); err != nil {
			t.Fatal(err)
		}
	}
}
