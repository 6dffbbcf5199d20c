package run

import (
	"io/fs"
	"os"
	"strconv"
	"testing"
	"testing/fstest"

	castle "github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestRecordedModuleSurvivesAKillDuringItsReplacement(t *testing.T) {
	cluster, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	dir, rec := cluster.Stage("metallb"), state.Record{Name: "metallb", Layer: "networking"}
	c := &castle.Cluster{Dir: cluster}
	for _, text := range []string{"# first", "# second"} {
		files, inputs := fstest.MapFS{"main.tf": {Data: []byte(text)}}, []byte(strconv.Quote(text))
		if err := keepModule(cluster, dir, rec, files, inputs, nil); err != nil {
			t.Fatal(err)
		}
	}
	// Killed between the two steps: the old copy is gone, the new one not in its place.
	if err := os.Rename(modulePath(dir), modulePath(dir)+nextSuffix); err != nil {
		t.Fatal(err)
	}
	// The next run begins to replace it, and is killed before the newer copy is whole.
	unreadable := fstest.MapFS{"main.tf": {Mode: fs.ModeSymlink | 0o777, Data: []byte("nowhere")}}
	if err := keepModule(cluster, dir, rec, unreadable, nil, nil); err == nil {
		t.Fatal("a module that cannot be read was kept")
	}
	module, inputs, err := RecordedModule(c, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fs.ReadFile(module, "main.tf"); err != nil || string(got) != "# second" {
		t.Errorf("got %q, %v; want the module that was about to be applied", got, err)
	}
	if string(inputs) != `"# second"` {
		t.Errorf("got the inputs %q, want those of that module", inputs)
	}
}
