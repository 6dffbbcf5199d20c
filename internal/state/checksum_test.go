package state

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// ruins are the ways in which a test damages a file; a nil one deletes it.
var ruins = map[string]func([]byte) []byte{
	"null":    func([]byte) []byte { return []byte("null\n") },
	"braces":  func([]byte) []byte { return []byte("{}\n") },
	"list":    func([]byte) []byte { return []byte("[]\n") },
	"empty":   func([]byte) []byte { return nil },
	"cut":     func(data []byte) []byte { return data[:len(data)/2] },
	"no seal": func(data []byte) []byte { return data[:bytes.Index(data, []byte("{\"sha256\""))] },
	"flipped": func(data []byte) []byte {
		data = bytes.Clone(data)
		data[len(data)/3] ^= 1
		return data
	},
	"deleted": nil,
}

func ruin(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil && how == nil {
		err = os.Remove(path)
	} else if err == nil {
		err = os.WriteFile(path, how(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDamagedDocumentIsReadFromItsCopyAndRestored(t *testing.T) {
	for name, how := range ruins {
		s := made(t, open(t), "platform")
		want := Record{Name: "platform", Layer: "platform", Source: "a", Needs: []string{"keys", "images"}}
		held := StageDocument[[]string](s, "held")
		err := errors.Join(s.SetRecord(want), held.Write([]string{}), held.Write([]string{"vm.a"}))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{s.record().path, held.path} {
			sound, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			ruin(t, path, how)
			if r, err := s.Record(); err != nil || len(r.Needs) != 2 || r.Source != "a" {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			if v, err := held.Value(); err != nil || len(v) != 1 {
				t.Errorf("%s: held %q, %v", name, v, err)
			}
			repaired(t, s, path)
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, sound) {
				t.Errorf("%s: %s is %q, %v", name, path, now, err)
			}
		}
	}
}

func TestDamagedDocumentWithoutCopyIsNeverNothing(t *testing.T) {
	s := made(t, open(t), "platform")
	for name, how := range ruins {
		rec := Record{Name: "platform", Layer: "platform", Needs: []string{"keys", "images"}}
		if err := errors.Join(s.SetRecord(rec), os.Remove(copyOf(s.record().path))); err != nil {
			t.Fatal(err)
		}
		if name == "deleted" || name == "no seal" { // then there never was one, or it is refused
			continue
		}
		ruin(t, s.record().path, how)
		_, err := s.Record()
		if !errors.As(err, new(*DamagedError)) || !strings.Contains(err.Error(), "from a backup") ||
			!strings.HasPrefix(err.Error(), s.record().path+" is damaged: ") {
			t.Errorf("%s: %v", name, err)
		}
		held := StageDocument[[]string](s, "held")
		if err := errors.Join(held.Write([]string{"vm.a"}), os.Remove(copyOf(held.path))); err != nil {
			t.Fatal(err)
		}
		ruin(t, held.path, how)
		if v, err := held.Value(); name != "list" && !errors.As(err, new(*DamagedError)) {
			t.Errorf("%s: held %q, %v", name, v, err)
		}
	}
}

func TestRecordWithDamagedCopyIsRefusedIfDeleted(t *testing.T) {
	s := made(t, open(t), "platform")
	if err := s.SetRecord(Record{Name: "platform", Layer: "platform"}); err != nil {
		t.Fatal(err)
	}
	ruin(t, s.record().path, nil)
	ruin(t, copyOf(s.record().path), ruins["cut"])
	if _, err := s.Record(); errors.Is(err, fs.ErrNotExist) || !errors.As(err, new(*DamagedError)) {
		t.Errorf("got %v", err)
	}
	if names, err := s.dir.Stages(); err != nil || len(names) != 1 {
		t.Errorf("stages: %q, %v", names, err)
	}
}

func TestClearedDocumentStaysCleared(t *testing.T) {
	s := made(t, open(t), "platform")
	d := StageDocument[[]string](s, "held")
	if err := errors.Join(d.Write([]string{"a"}), d.Clear(), d.Clear()); err != nil {
		t.Fatal(err)
	}
	if v, err := d.Read(); v != nil || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	if told, err := s.dir.Repair(); err != nil || len(told) > 0 {
		t.Errorf("%q, %v", told, err)
	}
}
