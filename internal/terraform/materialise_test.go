package terraform

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/zclconf/go-cty/cty"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o444} }

func materialise(t *testing.T, r *Root, module fs.FS, o Override) {
	t.Helper()
	if err := r.Materialise(module, o); err != nil {
		t.Fatal(err)
	}
}

// listing returns the work directory's files.
func listing(t *testing.T, r *Root) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != r.Dir {
			names = append(names, strings.TrimPrefix(path, r.Dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestMaterialiseCopiesOnlyTheModule(t *testing.T) {
	r, _ := fake(t)
	script := file("#!/bin/sh")
	script.Mode = 0o555
	materialise(t, r, fstest.MapFS{
		"main.tf": file("m"), "chart/templates/_helpers.tpl": file("h"), "scripts/run.sh": script,
		".terraform/providers/x": file("old"), "terraform.tfstate": file("{}"),
		"terraform.tfvars": file("a = 1"), "z.auto.tfvars": file("a = 2"),
		"chart/values.auto.tfvars": file("not Terraform's"),
	}, Override{})
	want := []string{
		".castle-files.json", "castle_override.tf", "chart", "chart/templates",
		"chart/templates/_helpers.tpl",
		"chart/values.auto.tfvars", "main.tf", "scripts", "scripts/run.sh",
	}
	if got := listing(t, r); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if info, err := os.Stat(filepath.Join(r.Dir, "scripts/run.sh")); err != nil ||
		info.Mode().Perm() != 0o700 {
		t.Errorf("script: %v, %v", info.Mode(), err)
	}
}

func TestMaterialiseRemovesOnlyWhatTheModuleNoLongerHas(t *testing.T) {
	r, _ := fake(t)
	materialise(t, r, fstest.MapFS{"main.tf": file("1"), "old.tf": file("x"), "dir/deep/old.txt": file("x"),
		"was-a-file": file("x")}, Override{})
	writeFile(t, filepath.Join(r.Dir, ".terraform.lock.hcl"), "generated")
	writeFile(t, filepath.Join(r.Dir, "errored.tfstate"), "rescued")
	writeFile(t, filepath.Join(r.Dir, "written-by-a-resource.txt"), "w")
	writeFile(t, filepath.Join(r.Dir, ".terraform/modules/modules.json"), "{}")
	materialise(t, r, fstest.MapFS{"main.tf": file("2"), "was-a-file/now.txt": file("n")}, Override{})
	want := []string{
		".castle-files.json", ".terraform", ".terraform/modules", ".terraform/modules/modules.json",
		".terraform.lock.hcl",
		"castle_override.tf", "errored.tfstate", "main.tf", "was-a-file", "was-a-file/now.txt",
		"written-by-a-resource.txt",
	}
	if got := listing(t, r); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := get(t, filepath.Join(r.Dir, "main.tf")); got != "2" {
		t.Errorf("main.tf: %q", got)
	}
}

func TestMaterialiseReplacesADamagedManifest(t *testing.T) {
	for _, damage := range []string{"null", "", "{\"main.tf\"", "[1]"} {
		r, _ := fake(t)
		older := fstest.MapFS{"main.tf": file("1"), "old.tf": file("x"), "sub/old.tf.json": file("x")}
		materialise(t, r, older, Override{})
		writeFile(t, filepath.Join(r.Dir, ".castle-files.json"), damage)
		writeFile(t, filepath.Join(r.Dir, "errored.tfstate"), "rescued")
		writeFile(t, filepath.Join(r.Dir, ".terraform/modules/a/main.tf"), "fetched")
		materialise(t, r, fstest.MapFS{"main.tf": file("2")}, Override{})
		want := []string{".castle-files.json", ".terraform", ".terraform/modules", ".terraform/modules/a",
			".terraform/modules/a/main.tf", "castle_override.tf", "errored.tfstate", "main.tf"}
		if got := listing(t, r); !slices.Equal(got, want) {
			t.Errorf("%q: got  %q\nwant %q", damage, got, want)
		}
		if got := get(t, filepath.Join(r.Dir, ".castle-files.json")); !strings.Contains(got, "main.tf") {
			t.Errorf("%q: the manifest is %s", damage, got)
		}
	}
}

func TestMaterialiseRestoresAChangedCopy(t *testing.T) {
	r, _ := fake(t)
	module := fstest.MapFS{"main.tf": file("right")}
	materialise(t, r, module, Override{})
	writeFile(t, filepath.Join(r.Dir, "main.tf"), "edited by hand")
	materialise(t, r, module, Override{})
	if got := get(t, filepath.Join(r.Dir, "main.tf")); got != "right" {
		t.Errorf("main.tf: %q", got)
	}
}

func TestMaterialiseRemovesWhatSomebodyHasAdded(t *testing.T) {
	r, _ := fake(t)
	module := fstest.MapFS{"main.tf": file("right")}
	materialise(t, r, module, Override{Inputs: map[string]cty.Value{}})
	added := []string{"evil.tf", "evil_override.tf.json", "evil.auto.tfvars", "terraform.tfvars.json",
		"sub/evil.tf"}
	for _, name := range added {
		writeFile(t, filepath.Join(r.Dir, name), "{}")
	}
	materialise(t, r, module, Override{})
	for _, name := range added {
		if _, err := os.Stat(filepath.Join(r.Dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	get(t, filepath.Join(r.Dir, inputsFile))
}

func TestMaterialiseKeepsALockFileUntilTheModuleShipsAnother(t *testing.T) {
	r, _ := fake(t)
	lock := filepath.Join(r.Dir, ".terraform.lock.hcl")
	materialise(t, r, fstest.MapFS{".terraform.lock.hcl": file("shipped")}, Override{})
	writeFile(t, lock, "shipped and completed")
	materialise(t, r, fstest.MapFS{".terraform.lock.hcl": file("shipped")}, Override{})
	if got := get(t, lock); got != "shipped and completed" {
		t.Errorf("got %q", got)
	}
	writeFile(t, lock, "") // by a power cut
	materialise(t, r, fstest.MapFS{".terraform.lock.hcl": file("shipped")}, Override{})
	if got := get(t, lock); got != "shipped" {
		t.Errorf("got %q", got)
	}
	materialise(t, r, fstest.MapFS{".terraform.lock.hcl": file("another")}, Override{})
	if got := get(t, lock); got != "another" {
		t.Errorf("got %q", got)
	}
}

func TestMaterialiseWritesBackendProvidersAndInputs(t *testing.T) {
	r, _ := fake(t)
	r.StatePath = `/state/it's "here"/terraform.tfstate`
	module := fstest.MapFS{"versions.tf": file(`
terraform {
  required_providers {
    h          = { source = "hashicorp/helm", version = "~> 3.1" }
    kubernetes = { source = "registry.terraform.io/hashicorp/kubernetes" }
  }
}`)}
	materialise(t, r, module, Override{
		InCluster: []string{"registry.terraform.io/hashicorp/helm",
			"registry.terraform.io/hashicorp/kubernetes"},
		Kubeconfig: "/state/kubeconfig",
		Inputs: map[string]cty.Value{
			"token":   cty.StringVal("${secret}").Mark("sensitive"),
			"count":   cty.MustParseNumberVal("12345678901234567890"),
			"nothing": cty.NullVal(cty.DynamicPseudoType), "on": cty.True,
			"nodes": cty.ObjectVal(map[string]cty.Value{
				"a": cty.TupleVal([]cty.Value{cty.NumberFloatVal(0.5), cty.NullVal(cty.DynamicPseudoType)}),
			}),
			"empty": cty.ListValEmpty(cty.String),
		},
	})
	want := `terraform {
  backend "local" {
    path = "/state/it's \"here\"/terraform.tfstate"
  }
}

provider "h" {
  kubernetes = {
    config_path = "/state/kubeconfig"
  }
}

provider "kubernetes" {
  config_path = "/state/kubeconfig"
}
`
	if got := get(t, filepath.Join(r.Dir, "castle_override.tf")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	inputs := filepath.Join(r.Dir, "castle.auto.tfvars.json")
	var compact map[string]json.RawMessage
	if err := json.Unmarshal([]byte(get(t, inputs)), &compact); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(compact)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"count":12345678901234567890,"empty":[],"nodes":{"a":[0.5,null]},"nothing":null,"on":` +
		`true,"token":"${secret}"}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	before := get(t, inputs)
	materialise(t, r, module, Override{})
	if get(t, inputs) != before {
		t.Error("without inputs: those that were there are gone")
	}
}

func TestMaterialiseIsPrivateWhateverTheUmask(t *testing.T) {
	r, _ := fake(t)
	writeFile(t, filepath.Join(r.Dir, "castle.auto.tfvars.json"), "{}")
	if err := os.Chmod(filepath.Join(r.Dir, "castle.auto.tfvars.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	old := syscall.Umask(0)
	err := r.Materialise(fstest.MapFS{"main.tf": file("m"), "a/b": file("c")},
		Override{Inputs: map[string]cty.Value{"x": cty.True}})
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(listing(t, r), ".") {
		info, err := os.Stat(filepath.Join(r.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %#o", name, info.Mode().Perm())
		}
	}
}

func TestMaterialiseRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		module fstest.MapFS
		o      Override
		want   string
	}{
		"castle's own names": {fstest.MapFS{"castle_override.tf": file("x")}, Override{},
			"castle_override.tf: castle writes"},
		"unknown values": {fstest.MapFS{},
			Override{Inputs: map[string]cty.Value{"x": cty.UnknownVal(cty.String)}},
			"input x: known after apply only"},
		"other providers": {fstest.MapFS{}, Override{InCluster: []string{"registry.terraform.io/acme/x"}},
			"provider registry.terraform.io/acme/x"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := fake(t)
			if err := r.Materialise(test.module, test.o); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
