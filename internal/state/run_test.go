package state

import (
	"os"
	"path/filepath"
	"testing"
)

// A machine whose clock was ahead leaves ids that sort after all others.
func TestANewRunFollowsAllRuns(t *testing.T) {
	d, err := Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	ahead := "29991231T235959.999-create-abcdef"
	for _, name := range []string{ahead, "20200101T000000.000-plan-abcdef", "zzz"} {
		if err := os.Mkdir(filepath.Join(d.runs(), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	next := d.NewRun("destroy").ID
	if next <= ahead || !IsRunID(next) || RunKind(next) != "destroy" {
		t.Errorf("got %s after %s", next, ahead)
	}
	if err := os.Mkdir(filepath.Join(d.runs(), next), 0o700); err != nil {
		t.Fatal(err)
	}
	if after := d.NewRun("create").ID; after <= next {
		t.Errorf("got %s after %s", after, next)
	}
}
