package config

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/tools/txtar"
)

// longestLoad is far more than reading a cluster takes, also on a busy machine.
const longestLoad = 10 * time.Second

func FuzzClusterFile(f *testing.F) {
	fuzzFile(f, "clusters/blue/proxmox/cluster.hcl", "../../clusters/*/*/cluster.hcl")
}

func FuzzStageFile(f *testing.F) {
	fuzzFile(f, "stages/networking/metallb/stage.hcl", "../../stages/*/*/stage.hcl")
}

func FuzzTFVars(f *testing.F) {
	fuzzFile(f, "clusters/blue/proxmox/terraform.tfvars", "../../clusters/*/*/*.tfvars")
}

// fuzzFile replaces one file of the library on paper. Loading ends soon and gives the same twice, and each
// problem is at a line that exists. The seeds are the file on paper and real ones.
func fuzzFile(f *testing.F, name, seeds string) {
	paper, err := txtar.ParseFile(filepath.Join("testdata", "paper.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	root, library := f.TempDir(), fstest.MapFS{}
	write := func(name string, data []byte) {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			f.Fatal(err)
		}
	}
	for _, file := range paper.Files {
		if name == file.Name || "library/"+strings.TrimPrefix(name, "stages/") == file.Name {
			f.Add(file.Data)
		}
		embedded, isStage := strings.CutPrefix(file.Name, "library/")
		if !isStage {
			write(file.Name, file.Data)
			continue
		}
		library[embedded] = &fstest.MapFile{Data: file.Data}
		if strings.HasPrefix("stages/"+embedded, filepath.Dir(name)) {
			write("stages/"+embedded, file.Data) // the repository's own stage has the file
		}
	}
	real, err := filepath.Glob(seeds)
	if err != nil || len(real) == 0 {
		f.Fatalf("no seeds in %s: %v", seeds, err)
	}
	for _, path := range real {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	o := Options{Repository: root, Cluster: "blue", Library: library, Gates: gateTypes(),
		Preflights: preflightTypes(), Exists: existsTypes(), CastleVersion: "1.4.0"}
	read := func(name string) ([]byte, error) {
		if embedded, ok := strings.CutPrefix(name, "<embedded>/stages/"); ok {
			return fs.ReadFile(library, embedded)
		}
		return os.ReadFile(filepath.Join(root, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		write(name, data)
		began := time.Now()
		cluster, diags := Load(o)
		if took := time.Since(began); took > longestLoad {
			t.Errorf("loading took %s", took)
		}
		for _, d := range diags {
			if d.Subject == nil {
				t.Errorf("no place: %s", render(d))
				continue
			}
			content, err := read(d.Subject.Filename)
			lines := bytes.Count(content, []byte("\n")) + 1
			if at := d.Subject.Start.Line; err != nil || at < 1 || at > lines {
				t.Errorf("no such place (%v): %s", err, render(d))
			}
		}
		again, more := Load(o)
		if a, b := described(cluster, diags), described(again, more); !slices.Equal(a, b) {
			t.Errorf("loaded\n%s\nthen\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
	})
}

// described is what a user relies on in a loaded cluster.
func described(c *Cluster, diags hcl.Diagnostics) []string {
	lines := []string{fmt.Sprint(c.Name, c.Platform, c.Protect, c.Snapshots, c.Runs)}
	for _, s := range slices.Concat(c.Stages, c.Disabled) {
		line := fmt.Sprintf("%s %s %s %v", s.Name, s.Source, s.Origin, s.Timeout)
		for _, need := range s.Needs {
			line += " needs " + need.Name
		}
		for _, g := range s.Gates {
			line += fmt.Sprintf(" gate %s %+v", g.Name(), g.Policy)
		}
		inputs, _ := s.Inputs(Scope{unknown: true})
		lines = append(lines, fmt.Sprintf("%s inputs %#v", line, inputs))
	}
	for _, d := range diags {
		lines = append(lines, render(d))
	}
	return lines
}
