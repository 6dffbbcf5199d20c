package state

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/event"
)

func machine(id string, gone bool) event.Receipt {
	o := event.OwnedObject{Kind: "machine", ID: id, Gone: gone}
	return event.Receipt{Run: "run-" + id, Objects: []event.OwnedObject{o}}
}

func TestProofsOfAllRunsCount(t *testing.T) {
	d, err := Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	p := d.Proofs()
	expect := func(run string, want ...string) {
		t.Helper()
		all, err := p.Read()
		if err != nil || all == nil {
			t.Fatal(all, err)
		}
		var got []string
		for _, o := range all.Objects {
			got = append(got, o.ID)
		}
		if !slices.Equal(got, want) || all.Run != run {
			t.Errorf("%s: %q, want %s: %q", all.Run, got, run, want)
		}
	}
	begin := func() {
		t.Helper()
		if _, err := p.Begin(); err != nil {
			t.Fatal(err)
		}
	}
	add := func(proved event.Receipt) {
		t.Helper()
		if err := p.Append(proved); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := p.Read(); all != nil || err != nil {
		t.Errorf("before the first: %v, %v", all, err)
	}
	// The document has those of an earlier run.
	if err := p.document().Write(machine("1", true)); err != nil {
		t.Fatal(err)
	}
	begin()
	add(machine("2", true))
	add(machine("3", true))
	expect("run-3", "1", "2", "3")
	add(machine("2", false)) // it was seen again
	expect("run-2", "1", "3")

	// A kill cuts the last line short, and the next run goes on.
	journal := filepath.Join(d.Path(), "proved.jsonl")
	data, err := os.ReadFile(journal)
	if err == nil {
		err = os.WriteFile(journal, append(data, `{"run":"run-4","thi`...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	expect("run-2", "1", "3")
	begin()
	add(machine("5", true))
	expect("run-5", "1", "3", "5")

	if err := p.Clear(); err != nil {
		t.Fatal(err)
	}
	if all, err := p.Read(); all != nil || err != nil {
		t.Errorf("after Clear: %v, %v", all, err)
	}
}

func TestADamagedProofIsNotSkipped(t *testing.T) {
	d, err := Open(t.TempDir(), "blue", "proxmox")
	if err == nil {
		err = errors.Join(d.Proofs().Append(machine("1", true)), os.WriteFile(
			filepath.Join(d.Path(), "proved.jsonl"), []byte("\x00\x00\n{\"run\":\"a\"}\n"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if all, err := d.Proofs().Read(); !errors.As(err, new(*DamagedError)) {
		t.Errorf("got %v, %v", all, err)
	}
}
