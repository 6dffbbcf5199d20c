package share

import (
	"maps"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
)

func TestHistoryCountsWhatEachCommitChanged(t *testing.T) {
	c := &cluster.Cluster{
		Config: &config.Cluster{Name: "blue", Platform: "proxmox"},
		Store:  &cluster.StateStore{Store: commitstest.New("memory://a")},
	}
	log, err := c.Store.Log(c.Name())
	if err != nil {
		t.Fatal(err)
	}
	var last *commits.Commit
	contents := map[string]string{}
	for _, change := range []map[string]string{
		{"a": "four", "b": "12345678"}, {}, {"a": "three", "b": ""}, {"c": "1"},
	} {
		next := commits.Commit{Run: "r", Host: "laptop", User: "ada", Files: map[string]commits.File{}}
		maps.Copy(contents, change)
		for name, content := range contents {
			if content == "" {
				continue // removed
			}
			if last != nil && change[name] == "" {
				next.Files[name] = last.Files[name]
				continue
			}
			files, err := log.Upload(t.Context(), [][]byte{[]byte(content)})
			if err != nil {
				t.Fatal(err)
			}
			next.Files[name] = files[0]
		}
		if last, err = log.Append(t.Context(), last, next); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := History(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := [][3]int64{{4, 1, 1}, {3, 2, 5}, {2, 0, 0}, {1, 2, 12}}
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d", len(entries), len(want))
	}
	for i, e := range entries {
		if got := [3]int64{e.Number, int64(*e.Changed), *e.Bytes}; got != want[i] {
			t.Errorf("number, changed and bytes are %v, want %v", got, want[i])
		}
	}
	limited, err := History(t.Context(), c, 1)
	if err != nil || len(limited) != 1 || limited[0].Number != 4 || limited[0].Changed == nil {
		t.Errorf("with a limit: %+v, %v", limited, err)
	}
}
