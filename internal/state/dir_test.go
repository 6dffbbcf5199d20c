package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// made is a stage whose work directory is there, as Terraform's runner makes it.
func made(t *testing.T, d *Dir, name string) *Stage {
	t.Helper()
	s := d.Stage(name)
	if err := errors.Join(atomicfile.MkdirPrivate(s.Dir()), atomicfile.MkdirPrivate(s.Work())); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRootPrefersTheFlagThenCastlesVariableThenXDGThenHome(t *testing.T) {
	env := []string{"HOME=/home/ada", "XDG_STATE_HOME=/xdg", "CASTLE_STATE_DIR=/castle"}
	for _, test := range []struct {
		flag string
		env  []string
		want string
	}{
		{"/flag", env, "/flag"},
		{"", env, "/castle"},
		{"", env[:2], "/xdg/castle"},
		{"", env[:1], "/home/ada/.local/state/castle"},
		{"", []string{"HOME=/home/ada", "XDG_STATE_HOME=not/absolute"}, "/home/ada/.local/state/castle"},
	} {
		got, err := Root(test.flag, test.env)
		if err != nil || got != test.want {
			t.Errorf("Root(%q, %q) = %q, %v; want %q", test.flag, test.env, got, err, test.want)
		}
	}
	if _, err := Root("", nil); err == nil {
		t.Error("without any of them: no error")
	}
}

func TestEverythingIsPrivateWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o277} {
		old := syscall.Umask(umask)
		root := t.TempDir()
		if err := os.Chmod(root, 0o755); err != nil {
			t.Fatal(err)
		}
		d, err := Open(filepath.Join(root, "state"), "blue", "proxmox")
		if err == nil {
			err = writeOneOfEach(d)
		}
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(filepath.Join(root, "state", "blue"),
			func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := e.Info()
				if err != nil {
					return err
				}
				want := fs.FileMode(0o600)
				if e.IsDir() {
					want = 0o700
				}
				if got := info.Mode().Perm(); got != want {
					t.Errorf("umask %#o: %s has mode %#o, want %#o", umask, path, got, want)
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func writeOneOfEach(d *Dir) error {
	s := d.Stage("metallb")
	var f Fingerprint
	f.Add("module", []byte("x"))
	lock, err := d.Lock("run")
	if err != nil {
		return err
	}
	run := d.NewRun("create")
	log, err := run.Log("metallb")
	if err != nil {
		return err
	}
	journal, err := run.Journal()
	if err != nil {
		return err
	}
	return errors.Join(s.SetRecord(Record{}), atomicfile.Write(s.StatePath(), goodState(1)), s.Snapshot(),
		s.Fingerprint().Write(f), log.Close(), journal.Close(), lock.Unlock(),
		atomicfile.Write(d.Kubeconfig(), nil))
}

func TestOpenRefusesALayoutFromTheFuture(t *testing.T) {
	d := open(t)
	if err := os.WriteFile(filepath.Join(d.Path(), "layout"), []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Dir(filepath.Dir(d.Path())), "blue", "proxmox")
	if err == nil || !strings.Contains(err.Error(), "layout 2 was written by a newer castle") {
		t.Errorf("got %v", err)
	}
}

func TestOpenRefusesNamesThatLeaveTheRoot(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "/etc"} {
		if _, err := Open(t.TempDir(), name, "proxmox"); err == nil {
			t.Errorf("cluster %q: no error", name)
		}
		if _, err := Open(t.TempDir(), "blue", name); err == nil {
			t.Errorf("platform %q: no error", name)
		}
	}
}

func TestStagesAreThoseWithARecordOrAState(t *testing.T) {
	d := open(t)
	made(t, d, "nothing")
	if err := made(t, d, "recorded").SetRecord(Record{Name: "recorded"}); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(made(t, d, "killed-early").StatePath(), goodState(1)); err != nil {
		t.Fatal(err)
	}
	got, err := d.Stages()
	if err != nil || !slices.Equal(got, []string{"killed-early", "recorded"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestArchiveAndRemoveMakeAStageUnknown(t *testing.T) {
	d := open(t)
	kept, gone := made(t, d, "kept"), made(t, d, "gone")
	for _, s := range []*Stage{kept, gone} {
		if err := atomicfile.Write(s.StatePath(), goodState(7)); err != nil {
			t.Fatal(err)
		}
	}
	if err := ArchiveWhole(kept, "run-1"); err != nil {
		t.Fatal(err)
	}
	if err := gone.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := gone.Remove(); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if names, err := d.Stages(); err != nil || len(names) != 0 {
		t.Errorf("stages left: %q, %v", names, err)
	}
	data, err := os.ReadFile(filepath.Join(d.Path(), "archive", "run-1-kept", "terraform.tfstate"))
	if err != nil || string(data) != string(goodState(7)) {
		t.Errorf("archived state: %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(d.Path(), "archive", "run-1-gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the removed stage was archived: %v", err)
	}
}
