package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/zclconf/go-cty/cty"
)

func TestRecordKeepsPreflightValuesWithTheirTypes(t *testing.T) {
	s := made(t, open(t), "platform")
	if _, err := s.Record(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	values := map[string]cty.Value{
		"ids":   cty.ListVal([]cty.Value{cty.NumberIntVal(421)}),
		"token": cty.StringVal("t").Mark("sensitive"),
		"none":  cty.NullVal(cty.String),
	}
	check, err := NewRecordedCheck("vm_ids", "free", values)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRecord(Record{Name: "platform", Layer: "platform", EndsCluster: true,
		Preflights: []RecordedCheck{check}}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Record()
	if err != nil || r.Name != "platform" || !r.EndsCluster || len(r.Preflights) != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
	got, err := r.Preflights[0].Decode()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range values {
		want, _ = want.Unmark()
		if !got[name].RawEquals(want) {
			t.Errorf("%s: got %#v, want %#v", name, got[name], want)
		}
	}
}

func TestFingerprintNamesChangedParts(t *testing.T) {
	chart := t.TempDir()
	build := func(input, template string) *Fingerprint {
		t.Helper()
		if err := os.WriteFile(filepath.Join(chart, "values.yaml"), []byte(template), 0o600); err != nil {
			t.Fatal(err)
		}
		var f Fingerprint
		f.Add("input metallb_chart_version", []byte(input))
		err := errors.Join(
			f.AddFS("module", fstest.MapFS{"main.tf": {Data: []byte("m")},
				"chart/a.yaml": {Data: []byte("a")}}),
			f.AddFS("chart", os.DirFS(chart)), f.AddFile("file", filepath.Join(chart, "values.yaml")),
			f.AddFile("missing", chart+"/none"))
		if err != nil {
			t.Fatal(err)
		}
		return &f
	}
	s := made(t, open(t), "metallb")
	old := build("0.14.9", "x")
	if f, err := s.Fingerprint().Read(); f != nil || err != nil {
		t.Errorf("before: %v, %v", f, err)
	}
	if err := s.Fingerprint().Write(*old); err != nil {
		t.Fatal(err)
	}
	read, err := s.Fingerprint().Read()
	if err != nil {
		t.Fatal(err)
	}
	if same := build("0.14.9", "x"); len(same.Changed(read)) != 0 {
		t.Errorf("unchanged: %q", same.Changed(read))
	}
	next := build("0.15.2", "y")
	next.Add("new")
	if got, want := next.Changed(read), []string{"chart/values.yaml", "file", "input metallb_chart_version",
		"new"}; !slices.Equal(got, want) {
		t.Errorf("changed: %q, want %q", got, want)
	}
	if got := read.Changed(next); !slices.Contains(got, "new") {
		t.Errorf("a part that went: %q", got)
	}
	if got := read.Changed(nil); len(got) != 6 {
		t.Errorf("against nothing: %q", got)
	}
	if err := errors.Join(s.Fingerprint().Clear(), s.Fingerprint().Clear()); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Fingerprint().Read(); f != nil || err != nil {
		t.Errorf("cleared: %v, %v", f, err)
	}
}

func TestFingerprintKeepsPiecesApart(t *testing.T) {
	var a, b Fingerprint
	a.Add("x", []byte("ab"), []byte("c"))
	b.Add("x", []byte("a"), []byte("bc"))
	if len(a.Changed(&b)) == 0 {
		t.Error("other pieces with the same bytes are the same")
	}
	var one, both Fingerprint
	one.Add("x", []byte("b"))
	both.Add("x", []byte("a"))
	both.Add("x", []byte("b"))
	if len(one.Changed(&both)) == 0 {
		t.Error("adding to a part forgets what was in it")
	}
}
