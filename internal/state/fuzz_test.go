package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/event"
)

// stageWith is a stage with one file of these bytes.
func stageWith(t *testing.T, dir *Dir, name string, data []byte) *Stage {
	s := dir.Stage("platform")
	if err := errors.Join(os.MkdirAll(s.Dir(), 0o700),
		os.WriteFile(filepath.Join(s.Dir(), name), data, 0o600)); err != nil {
		t.Fatal(err)
	}
	return s
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":4,"serial":3,"lineage":"l",` +
		`"outputs":{"a":{"value":["x"],"type":["tuple",["string"]],` +
		`"sensitive":true}},"resources":[{"module":"module.m","mode":"managed","type":"vm","name":"node",` +
		`"provider":"provider[\"registry.terraform.io/bpg/proxmox\"]","instances":[{"index_key":"cp-01",` +
		`"attributes":{"vm_id":421}},{"index_key":1,"status":"tainted","deposed":"00000001"}]}]}`))
	f.Add([]byte(`{"version":4,"serial":0,"lineage":"","outputs":{},"resources":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := stageWith(t, open(t), "terraform.tfstate", data)
		st, err := s.readWhole()
		if err != nil {
			if !strings.Contains(err.Error(), s.StatePath()) {
				t.Errorf("no file is named: %v", err)
			}
			return
		}
		if len(data) > 0 && !st.Exists {
			t.Error("something was taken for nothing")
		}
		for _, r := range st.Resources {
			if !r.Deposed && !st.Has(r.Address) {
				t.Errorf("the state lacks its own %s", r.Address)
			}
		}
		after, err := os.ReadFile(s.StatePath())
		if err != nil || !bytes.Equal(after, data) {
			t.Errorf("reading changed the file: %v", err)
		}
	})
}

// FuzzDamagedIntent damages an intent. Every change that may have created something is in flight then, unless
// the damage only appends whole lines.
func FuzzDamagedIntent(f *testing.F) {
	f.Add(uint16(0), uint16(0), []byte(""))
	f.Add(uint16(40), uint16(9000), []byte("{\"run\":"))
	f.Add(uint16(300), uint16(1), []byte("\x00"))
	f.Add(uint16(90), uint16(100), []byte("null\n"))
	f.Fuzz(func(t *testing.T, at, cut uint16, insert []byte) {
		s, _ := begun(t)
		whole, err := os.ReadFile(s.Intent().path())
		if err != nil {
			t.Fatal(err)
		}
		damaged := damage(whole, at, cut, insert)
		stageWith(t, s.dir, "intent.jsonl", damaged)
		i, err := s.Intent().Read()
		if err != nil {
			t.Fatal(err)
		}
		if i.Damage == nil && !bytes.HasPrefix(damaged, whole) {
			t.Errorf("damage that nobody is told of: %q", damaged)
		}
		if i.Damage == nil {
			return
		}
		if got := len(i.InFlight(func(string) bool { return false })); got != 4 {
			t.Errorf("%d changes in flight: %+v", got, i.Changes)
		}
	})
}

// FuzzCutJournal cuts a journal. All whole lines are read, and only those.
func FuzzCutJournal(f *testing.F) {
	f.Add(uint16(0), "text")
	f.Add(uint16(130), "two\nlines \" and \\ quotes")
	f.Fuzz(func(t *testing.T, at uint16, text string) {
		text = strings.ToValidUTF8(text, "")
		run := open(t).NewRun("create")
		journal, err := run.Journal()
		if err != nil {
			t.Fatal(err)
		}
		var lines []event.Event
		for _, kind := range []event.Kind{event.RunStarted, event.StageFailed, event.RunEnded} {
			lines = append(lines, event.Event{Kind: kind, Text: text})
			if err := journal.Append(lines[len(lines)-1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := journal.Close(); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(run.journalPath())
		if err != nil {
			t.Fatal(err)
		}
		cut := whole[:min(int(at), len(whole))]
		if err := os.WriteFile(run.journalPath(), cut, 0o600); err != nil {
			t.Fatal(err)
		}
		events, err := run.Events()
		want := lines[:bytes.Count(cut, []byte("\n"))]
		if err != nil || len(events) != len(want) || len(want) > 0 && !sameJSON(t, events, want) {
			t.Errorf("read %+v (%v), want %+v", events, err, want)
		}
	})
}

// damage replaces cut bytes at a place.
func damage(whole []byte, at, cut uint16, insert []byte) []byte {
	from := min(int(at), len(whole))
	return slices.Concat(whole[:from], insert, whole[min(from+int(cut), len(whole)):])
}

func sameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	y, other := json.Marshal(b)
	if err = errors.Join(err, other); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}
