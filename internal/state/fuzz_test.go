package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
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

// FuzzDamagedRecord damages a document that castle has written, or it and its copy alike. Reading it
// returns the same value, or an error that names the file.
func FuzzDamagedRecord(f *testing.F) {
	for _, both := range []bool{false, true} {
		f.Add(uint16(0), uint16(9000), []byte("null"), both)
		f.Add(uint16(0), uint16(9000), []byte("{}"), both)
		f.Add(uint16(0), uint16(9000), []byte(""), both)
		f.Add(uint16(20), uint16(9000), []byte(""), both)
		f.Add(uint16(60), uint16(1), []byte("x"), both)
		f.Add(uint16(60), uint16(0), []byte{0}, both)
	}
	record := Record{Name: "platform", Layer: "platform", Source: "platform/proxmox-machines",
		EndsCluster: true,
		Needs:       []string{"infisical", "keys"}, Run: "20260101T000000.000-create-000001",
		Preflights: []RecordedCheck{{Type: "vm_ids", Label: "free", Values: map[string]json.RawMessage{
			"vm_ids": []byte(`{"value":{"cp":421},"type":["map","number"]}`)}}}}
	f.Fuzz(func(t *testing.T, at, cut uint16, insert []byte, both bool) {
		s := open(t).Stage("platform")
		if err := s.SetRecord(record); err != nil {
			t.Fatal(err)
		}
		path := s.record().path
		paths := []string{path, copyOf(path)}
		if !both {
			paths = paths[:1]
		}
		for _, path := range paths {
			harm(t, path, at, cut, insert)
		}
		read, err := s.Record()
		switch {
		case err == nil && !sameJSON(t, read, record):
			t.Errorf("read %+v, want %+v", read, record)
		case err != nil && !both:
			t.Errorf("the copy is not read: %v", err)
		case err != nil && (errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path)):
			t.Errorf("no damaged file is named: %v", err)
		}
	})
}

// FuzzDamagedIntent damages the intent of a change that is being made. No intended change is lost.
func FuzzDamagedIntent(f *testing.F) {
	f.Add(uint16(0), uint16(0), []byte(""))
	f.Add(uint16(0), uint16(9000), []byte(""))
	f.Add(uint16(40), uint16(9000), []byte("{\"run\":"))
	f.Add(uint16(300), uint16(1), []byte("\x00"))
	f.Add(uint16(90), uint16(100), []byte("null\n"))
	f.Fuzz(func(t *testing.T, at, cut uint16, insert []byte) {
		s := open(t).Stage("platform")
		log, err := s.Intent().Begin("r1", intended, nil)
		if err != nil {
			t.Fatal(err)
		}
		log.Note(intended[0].Address, intended[0].Action, Done)
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		harm(t, s.Intent().path(), at, cut, insert)
		read, err := s.Intent().Read()
		if err != nil {
			t.Fatalf("the copy is not read: %v", err)
		}
		for _, c := range intended {
			if !slices.ContainsFunc(read.Changes, func(r Intended) bool {
				return r.Address == c.Address && r.ID == c.ID && r.Action == c.Action && r.Before == c.Before
			}) {
				t.Errorf("%+v is lost: read %+v", c, read.Changes)
			}
		}
	})
}

// harm replaces cut bytes of a file at a place.
func harm(t *testing.T, path string, at, cut uint16, insert []byte) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	from := min(int(at), len(whole))
	damaged := slices.Concat(whole[:from], insert, whole[min(from+int(cut), len(whole)):])
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
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
