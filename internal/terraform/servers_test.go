package terraform

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/ephemeral-castle/castle/internal/providers"
)

const (
	helm   = "registry.terraform.io/hashicorp/helm"
	random = "registry.terraform.io/hashicorp/random"
)

// linked returns a work directory with this module and the two providers that init would have linked, with
// the lock that names their checksums.
func linked(t *testing.T, main string) (workdir, providers.Lock) {
	t.Helper()
	w, lock := workdir{dir: t.TempDir()}, providers.Lock{}
	module := fstest.MapFS{"main.tf": file(main)}
	if err := w.materialise(module, Override{}); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{helm, random} {
		pkg := providers.Package{Source: source, Version: "1.2.3", Platform: providers.Here()}
		dir := filepath.Join(w.dir, ".terraform", "providers", pkg.Unpacked())
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "terraform-provider-"+providers.Type(source)+"_v1.2.3"), "binary")
		hash, err := providers.Hash(dir)
		if err != nil {
			t.Fatal(err)
		}
		lock[source] = providers.Entry{Version: "1.2.3", Hashes: []string{hash}}
	}
	return w, lock
}

func startable(w workdir, lock providers.Lock) (sources []string) {
	for _, p := range w.startable(lock) {
		sources = append(sources, p.Source)
	}
	return sources
}

// A server has one configuration: Terraform would overwrite the first with the second.
func TestProvidersConfiguredTwiceAreLeftToTerraform(t *testing.T) {
	const once, alias = "provider \"helm\" {}\n", "provider \"helm\" {\n  alias = \"edge\"\n}\n"
	const expected = "terraform {\n  required_providers {\n    charts = {\n" +
		"      source = \"hashicorp/helm\"\n      configuration_aliases = [charts.edge]\n    }\n  }\n}\n"
	for _, test := range []struct {
		name, main, called string
		want               []string
	}{
		{"once", once, "", []string{helm, random}},
		{"twice", once + alias, "", []string{random}},
		{"beside the default one, which needs no block", alias, "", []string{random}},
		{"in a module that is called", "", once, []string{random}},
		{"for a module that is called", once, expected, []string{random}},
		{"once, and a module is called", once, "locals {}\n", []string{helm, random}},
	} {
		w, lock := linked(t, test.main)
		if test.called != "" {
			called := filepath.Join(w.dir, ".terraform", "modules", "edge")
			if err := os.MkdirAll(called, 0o700); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(called, "main.tf"), test.called)
			writeFile(t, filepath.Join(w.dir, ".terraform", "modules", "modules.json"),
				`{"Modules":[{"Key":"","Dir":"."},{"Key":"edge","Dir":".terraform/modules/edge"}]}`)
		}
		if got := startable(w, lock); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q", test.name, got)
		}
	}
}

func TestProvidersAreVerifiedBeforeTheyAreStarted(t *testing.T) {
	w, lock := linked(t, "")
	lock[random] = providers.Entry{Version: "1.2.3", Hashes: []string{"h1:another"}}
	for _, p := range w.startable(lock) {
		if err := p.Verify(); (err != nil) != (p.Source == random) {
			t.Errorf("%s: %v", p.Source, err)
		}
	}
}

// What init has verified is not read again, unless it has changed since.
func TestAChangedProviderIsVerifiedAnew(t *testing.T) {
	w, lock := linked(t, "")
	unknown := providers.Lock{helm: {Version: "1.2.3", Hashes: []string{"h1:unread"}}}
	p := w.startable(unknown)[0]
	if err := p.Verify(); err == nil {
		t.Error("an executable that nobody has verified passes")
	}
	if err := w.noteVerified(lock); err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Errorf("after init: %v", err)
	}
	writeFile(t, p.Path, "BINARY")
	if err := p.Verify(); err == nil {
		t.Error("a changed executable passes for the verified one")
	}
}

func TestProvidersAreNotStartedWithTheVariableAtZero(t *testing.T) {
	r, _ := fake(t)
	w, lock := linked(t, "")
	r.Dir, r.Log = w.dir, io.Discard
	writeFile(t, r.lockPath(), string(lock.File()))
	for _, off := range []string{"0", "false"} {
		r.Env = append(r.Env, "CASTLE_WARM_PROVIDERS="+off)
		if r.StartProviders(); r.servers.current != nil {
			t.Errorf("%s: they were started", off)
		}
	}
	r.Env = append(r.Env, "CASTLE_WARM_PROVIDERS=1")
	defer r.StopProviders()
	if r.StartProviders(); r.servers.current == nil {
		t.Error("they were not started")
	}
}
