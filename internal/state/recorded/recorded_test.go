package recorded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestRecordedModuleSurvivesAKillDuringItsReplacement(t *testing.T) {
	cluster, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	dir, rec := cluster.Stage("metallb"), state.Record{Name: "metallb", Layer: "networking"}
	for _, text := range []string{"# first", "# second"} {
		files, inputs := fstest.MapFS{"main.tf": {Data: []byte(text)}}, []byte(strconv.Quote(text))
		if err := Keep(cluster, dir, rec, files, inputs, nil); err != nil {
			t.Fatal(err)
		}
	}
	// Killed between the two steps: the old copy is gone, the new one not in its place.
	if err := os.Rename(modulePath(dir), modulePath(dir)+nextSuffix); err != nil {
		t.Fatal(err)
	}
	// The next run begins to replace it, and is killed before the newer copy is whole.
	unreadable := fstest.MapFS{"main.tf": {Mode: fs.ModeSymlink | 0o777, Data: []byte("nowhere")}}
	if err := Keep(cluster, dir, rec, unreadable, nil, nil); err == nil {
		t.Fatal("a module that cannot be read was kept")
	}
	module, inputs, err := Module(dir, "create")
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

func TestARecordedModuleIsVerifiedAndRepaired(t *testing.T) {
	opened, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	dir := opened.Stage("seed")
	module := fstest.MapFS{"main.tf": {Data: []byte("m")}, "sub/a.tf": {Data: []byte("a")}}
	rec := state.Record{Name: "seed", Layer: "secrets"}
	if rec.Module, err = state.Digest(module); err != nil {
		t.Fatal(err)
	}
	keep := func() {
		t.Helper()
		if err := Keep(opened, dir, rec, module, []byte("{}"), []byte("lock")); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(modulePath(dir), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	changed := fstest.MapFS{"main.tf": {Data: []byte("other")}, "sub/a.tf": {Data: []byte("a")}}
	for _, test := range []struct {
		name       string
		damage     func()
		repository fs.FS
		refused    string // what the error names; empty: it is repaired
	}{
		{"a lost file", func() { os.RemoveAll(filepath.Join(modulePath(dir), "sub")) }, module, ""},
		{"a changed file", func() { write("main.tf", "evil") }, module, ""},
		{"one more", func() { write("evil.tf", "evil") }, module, ""},
		{"the repository has changed", func() { write("main.tf", "evil") }, changed, "main.tf"},
		{"the lock file", func() { write(providers.ModuleFile, "other") }, module, providers.ModuleFile},
		{"all of it", func() { os.RemoveAll(modulePath(dir)) }, module, "is lost"},
		{"the inputs", func() { write(InputsFile, "{}") }, module, "no checksum"},
	} {
		keep()
		test.damage()
		if _, _, err := Module(dir, "create"); !errors.As(err, new(*state.DamagedError)) {
			t.Errorf("%s: %v", test.name, err)
		}
		repaired, err := Repair(opened, dir, test.repository)
		if err != nil || (len(repaired) > 0) != (test.refused == "") {
			t.Errorf("%s: repaired %q, %v", test.name, repaired, err)
		}
		_, _, err = Module(dir, "create")
		if test.refused == "" && err != nil || test.refused != "" && (err == nil ||
			!strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%s: afterwards: %v", test.name, err)
		}
	}
}

// Killed after the record was written, and before the copy was in its place.
func TestTheCopyThatTheRecordDescribesCounts(t *testing.T) {
	opened, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	dir, rec := opened.Stage("seed"), state.Record{Name: "seed", Layer: "secrets"}
	for _, text := range []string{"# first", "# second"} {
		module := fstest.MapFS{"main.tf": {Data: []byte(text)}}
		err := Keep(opened, dir, rec, module, []byte(strconv.Quote(text)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if text == "# first" {
			err = os.CopyFS(modulePath(dir)+".first", os.DirFS(modulePath(dir)))
		} else {
			err = errors.Join(os.Rename(modulePath(dir), modulePath(dir)+nextSuffix),
				os.Rename(modulePath(dir)+".first", modulePath(dir)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		_, inputs, err := Module(dir, "create")
		if err != nil || string(inputs) != `"# second"` {
			t.Errorf("got %q, %v", inputs, err)
		}
		if err := settle(opened, dir); err != nil {
			t.Fatal(err)
		}
	}
}
