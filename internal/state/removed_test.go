package state

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A store drops a file only if castle says that it has removed it.
func TestRemovalsOfAWorkingCopyAreListed(t *testing.T) {
	d, err := Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	listed := func() []string {
		t.Helper()
		all, err := d.Removed(func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	s := d.Stage("keys")
	if err := errors.Join(s.SetRecord(Record{Name: "keys", Layer: "secrets"}), s.Remove()); err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != nil {
		t.Errorf("without a store: %q", got)
	}
	if err := os.WriteFile(filepath.Join(d.Path(), "store.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.SetRecord(Record{Name: "keys", Layer: "secrets"}), s.Fingerprint().Clear(),
		s.Intent().Clear(), d.Proofs().Clear(), s.Remove(), d.Remove("/elsewhere/kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	keys := "stages/keys/"
	want := []string{keys + "fingerprint.json.copy", keys + "fingerprint.json", keys + "intent.jsonl.copy",
		keys + "intent.jsonl", "proved.json.copy", "proved.json", "proved.jsonl.copy", "proved.jsonl",
		"stages/keys"}
	got := listed()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := errors.Join(d.Remove(d.Kubeconfig()), d.Committed(got)); err != nil {
		t.Fatal(err)
	}
	if got := listed(); !slices.Equal(got, []string{"kubeconfig"}) {
		t.Errorf("after a commit: %q", got)
	}
	if err := os.WriteFile(filepath.Join(d.Path(), removedFile), []byte(`["kubec`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != nil {
		t.Errorf("a damaged list: %q", got)
	}
}

var removes = regexp.MustCompile(`\b(os|ownfile)\.(Remove|RemoveAll|Rename)\(`)

// What removes a file without listing it makes the store bring it back.
func TestWhateverRemovesListsIt(t *testing.T) {
	exempt := map[string]int{
		"removed.go":  3,
		"checksum.go": 1, // a copy, which the store brings back
		"dir.go":      1, // folders aside, which no commit names
		"stage.go":    2, // likewise
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(sources, "recorded/recorded.go") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(removes.FindAll(data, -1)); n != exempt[name] && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s has %d calls of os.Remove, os.RemoveAll and os.Rename, want %d: use those of Dir",
				name, n, exempt[name])
		}
	}
}
