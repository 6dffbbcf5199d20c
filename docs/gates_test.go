// Package docs_test holds what the documents say against castle itself.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

var (
	heading = regexp.MustCompile("^### `([a-z_]+)`$")
	row     = regexp.MustCompile("^\\| `([a-z_]+)` \\| ([^|]+) \\| [^|]+ \\|$")
)

// section is what gates.md says of one type.
type section struct {
	arguments map[string]bool // and whether each is called required
	examples  []string
}

// sections reads gates.md. Every heading of the third level is a type's.
func sections(t *testing.T) map[string]*section {
	t.Helper()
	text, err := os.ReadFile("gates.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*section{}
	var at *section
	block, inBlock := "", false
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSuffix(line, "\n")
		switch h, r := heading.FindStringSubmatch(trimmed), row.FindStringSubmatch(trimmed); {
		case h != nil:
			at = &section{arguments: map[string]bool{}}
			found[h[1]] = at
		case trimmed == "```hcl":
			block, inBlock = "", true
		case inBlock && trimmed == "```":
			at.examples, inBlock = append(at.examples, block), false
		case inBlock:
			block += line
		case r != nil && at != nil:
			at.arguments[r[1]] = strings.Contains(r[2], "required")
		}
	}
	return found
}

func TestEveryTypeOfGateIsDescribedWithAllItsArguments(t *testing.T) {
	described := sections(t)
	for _, kind := range cluster.GateTypes() {
		s := described[kind.Name]
		if s == nil {
			t.Errorf("gates.md says nothing of %s", kind.Name)
			continue
		}
		compare(t, kind, s.arguments)
		if len(s.examples) == 0 {
			t.Errorf("%s has no example", kind.Name)
		}
		delete(described, kind.Name)
	}
	for name := range described {
		t.Errorf("gates.md describes %s, and there is no such type", name)
	}
}

func compare(t *testing.T, kind gate.Type, described map[string]bool) {
	t.Helper()
	for name, a := range kind.Attributes {
		required, ok := described[name]
		if !ok {
			t.Errorf("%s: the argument %s is not described", kind.Name, name)
		} else if required != a.Required {
			t.Errorf("%s: %s is called required: %t, and is: %t", kind.Name, name, required, a.Required)
		}
	}
	for name := range described {
		if _, ok := kind.Attributes[name]; !ok {
			t.Errorf("%s: %s is described, and there is no such argument", kind.Name, name)
		}
	}
}

func TestEveryExampleOfAGateIsValid(t *testing.T) {
	for name, s := range sections(t) {
		t.Run(name, func(t *testing.T) {
			repository := t.TempDir()
			write(t, repository, "clusters/green/proxmox/cluster.hcl",
				"stage \"example\" {\n  source = \"gitops/example\"\n}\n"+
					"stage \"addresses\" {\n  source = \"networking/plain\"\n}\nstage \"volumes\" {\n"+
					"  source = \"storage/plain\"\n}\n"+
					"stage \"machines\" {\n  source = \"platform/plain\"\n}\n"+
					"stage \"vault\" {\n  source = \"secrets/plain\"\n}\n")
			for _, stage := range []string{"platform", "networking", "storage", "secrets"} {
				write(t, repository, "stages/"+stage+"/plain/stage.hcl",
					"stage {\n  summary = \"Nothing\"\n}\n")
			}
			write(t, repository, "stages/platform/plain/outputs.tf",
				"output \"kubeconfig\" {\n  value = \"\"\n}\noutput \"talosconfig\" {\n  value = \"\"\n}\n")
			write(t, repository, "stages/secrets/plain/outputs.tf",
				"output \"tailscale_oauth_client_id\" {\n  value = \"\"\n}\n"+
					"output \"tailscale_oauth_client_secret\" {\n  value = \"\"\n}\n")
			write(t, repository, "stages/gitops/example/stage.hcl",
				"stage {\n  summary = \"An example\"\n}\n"+strings.Join(s.examples, "\n"))
			_, diags := config.Load(config.Options{
				Repository: repository, Cluster: "green", Gates: cluster.GateTypes(),
				Preflights: cluster.PreflightTypes(), Exists: cluster.ExistsTypes(),
				Survivors: cluster.SurvivorTypes(),
				Library:   stages.Library, Templates: templates.Files,
			})
			if diags.HasErrors() {
				t.Error(diags)
			}
		})
	}
}

func write(t *testing.T, repository, name, text string) {
	t.Helper()
	path := filepath.Join(repository, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
