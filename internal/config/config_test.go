package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"golang.org/x/tools/txtar"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// gateTypes are stand-ins for the types that castle has, with the arguments that the tests use.
func gateTypes() []gate.Type {
	text := gate.Attribute{Type: cty.String}
	needed := gate.Attribute{Type: cty.String, Required: true, Help: "What to look at."}
	count := gate.Attribute{Type: cty.Number, Required: true, Valid: gate.ValidCount}
	return []gate.Type{
		{Name: "talos_etcd", Talos: true, Attributes: map[string]gate.Attribute{"voters": count}},
		{Name: "kubernetes_api", Kubernetes: true, Attributes: map[string]gate.Attribute{"address": text}},
		{Name: "nodes", Kubernetes: true, Attributes: map[string]gate.Attribute{"count": count}},
		{Name: "webhook", Kubernetes: true, Attributes: map[string]gate.Attribute{"configuration": needed}},
		{Name: "condition", Kubernetes: true, Attributes: map[string]gate.Attribute{"kind": needed}},
		{Name: "endpoint_slice", Kubernetes: true, Attributes: map[string]gate.Attribute{"namespace": needed,
			"service": needed}},
		{Name: "flux", Kubernetes: true, Attributes: map[string]gate.Attribute{}},
		{Name: "tcp", Attributes: map[string]gate.Attribute{"host": text, "address": text},
			Check: func(v gate.Values) error {
				if v.Has("host") && v.Has("address") {
					return errors.New("host and address exclude each other")
				}
				return nil
			}},
	}
}

func preflightTypes() []gate.PreflightType {
	return []gate.PreflightType{{Name: "vm_ids", Attributes: map[string]gate.Attribute{
		"endpoint":  {Type: cty.String, Required: true},
		"api_token": {Type: cty.String, Required: true},
		"vm_ids":    {Type: cty.Map(cty.Number), Required: true},
		"tags":      {Type: cty.List(cty.String)},
	}}}
}

func existsTypes() []gate.ExistsType {
	return []gate.ExistsType{
		{Name: "talos_bootstrapped",
			Attributes: map[string]gate.Attribute{"endpoint": {Type: cty.String, Required: true}}},
	}
}

// repository writes the library on paper with changes laid over it: files that
// a change names are replaced. It returns options that load blue.
func repository(t *testing.T, changes string) Options {
	t.Helper()
	paper, err := txtar.ParseFile(filepath.Join("testdata", "paper.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, archive := range []*txtar.Archive{paper, txtar.Parse([]byte(changes))} {
		for _, f := range archive.Files {
			files[f.Name] = f.Data
		}
	}
	root, library := t.TempDir(), fstest.MapFS{}
	for name, data := range files {
		if embedded, ok := strings.CutPrefix(name, "library/"); ok {
			library[embedded] = &fstest.MapFile{Data: data}
			continue
		}
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Repository: root, Cluster: "blue", Library: library, Gates: gateTypes(),
		Preflights: preflightTypes(), Exists: existsTypes(), CastleVersion: "1.4.0"}
}

// loaded loads the changed library on paper, which must be without error.
func loaded(t *testing.T, changes string, with ...func(*Options)) *Cluster {
	t.Helper()
	o := repository(t, changes)
	for _, f := range with {
		f(&o)
	}
	c, diags := Load(o)
	for _, d := range diags {
		t.Errorf("unexpected: %s", render(d))
	}
	if t.Failed() {
		t.FailNow()
	}
	return c
}

func render(d *hcl.Diagnostic) string {
	at := "-"
	if d.Subject != nil {
		at = fmt.Sprintf("%s:%d", d.Subject.Filename, d.Subject.Start.Line)
	}
	return fmt.Sprintf("%s: %s; %s", at, d.Summary, d.Detail)
}

// expect loads the changed library on paper and wants exactly these problems, in order. Each lists a place
// and words of the message, separated by " | ".
func expect(t *testing.T, changes string, want []string, with ...func(*Options)) {
	t.Helper()
	o := repository(t, changes)
	for _, f := range with {
		f(&o)
	}
	_, diags := Load(o)
	for i, d := range diags {
		got := render(d)
		if i >= len(want) {
			t.Errorf("unexpected: %s", got)
			continue
		}
		words := strings.Split(want[i], " | ")
		if !strings.HasPrefix(got, words[0]+": ") {
			t.Errorf("problem %d: got %s\nwant it at %s", i, got, words[0])
		}
		for _, w := range words[1:] {
			if !strings.Contains(got, w) {
				t.Errorf("problem %d: got %s\nwant %q in it", i, got, w)
			}
		}
	}
	for _, w := range want[min(len(diags), len(want)):] {
		t.Errorf("not reported: %s", w)
	}
}

func stage(t *testing.T, c *Cluster, name string) *Stage {
	t.Helper()
	for _, s := range c.Stages {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no stage %s", name)
	return nil
}

func names(stages []*Stage) string {
	var all []string
	for _, s := range stages {
		all = append(all, s.Name)
	}
	return strings.Join(all, " ")
}

// inputs returns the stage's inputs in a scope with every secret and namespace that the library on paper
// refers to.
func inputs(t *testing.T, s *Stage) map[string]cty.Value {
	t.Helper()
	values, diags := s.Inputs(applied(s))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return values
}

// applied is a scope in which every output is the string "<layer>.<output>".
func applied(s *Stage) Scope {
	sc := Scope{Outputs: map[string]map[string]cty.Value{}, Self: map[string]cty.Value{}}
	for layer, owners := range s.cluster.owners {
		sc.Outputs[layer] = map[string]cty.Value{}
		for name := range owners {
			sc.Outputs[layer][name] = cty.StringVal(layer + "." + name)
		}
	}
	for name := range s.Outputs {
		sc.Self[name] = cty.StringVal("self." + name)
	}
	return sc
}
