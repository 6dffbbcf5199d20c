package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/survivor"
)

// withSurvivors lets blocks of two types survive: files are of Longhorn, and rows are not.
func withSurvivors(o *Options) {
	o.Survivors = []survivor.Type{{Name: "files", Layer: "storage"}, {Name: "rows"}}
}

// surviving is the cluster on paper, where a stage has a survives block.
func surviving(stage, block string, without ...string) string {
	text := "-- " + clusterFile + " --\n"
	for _, source := range []string{"secrets/infisical", "secrets/keys", "platform/proxmox-talos",
		"engine/external-secrets", "engine/secret-store", "networking/metallb", "networking/address-pool",
		"storage/longhorn", "gitops/flux"} {
		name := source[strings.Index(source, "/")+1:]
		if slices.Contains(without, name) {
			continue
		}
		text += "stage \"" + name + "\" {\n  source = \"" + source + "\"\n"
		if name == stage {
			text += "  " + block + "\n"
		}
		text += "}\n"
	}
	return text
}

func TestAStageWaitsForTheLayerThatRestoresItsData(t *testing.T) {
	for block, waits := range map[string]bool{`survives "files" "data" {}`: true,
		`survives "rows" "data" {}`: false} {
		t.Run(block, func(t *testing.T) {
			c := loaded(t, surviving("flux", block), withSurvivors)
			at := slices.IndexFunc(c.Stages, func(s *Stage) bool { return s.Name == "flux" })
			for _, e := range c.Stages[at].Edges() {
				if e.From.Name == "longhorn" && (!waits || !e.Ordered) {
					t.Errorf("%+v", e)
				}
				waits = waits && e.From.Name != "longhorn"
			}
			if waits {
				t.Error("it does not wait for longhorn")
			}
			for _, d := range c.Stages[at].Survivors {
				if len(d.Needs) > 0 {
					t.Errorf("what the data begin with waits for %v: it is decided before any stage", d.Needs)
				}
			}
		})
	}
}

func TestDataWithoutTheirLayerAreRefused(t *testing.T) {
	const block = `survives "files" "data" {}`
	for name, tt := range map[string]struct{ changes, want string }{
		"no stage of it": {surviving("flux", block, "longhorn"),
			`| survives files.data needs a stage of layer storage`},
		"an earlier layer": {surviving("metallb", block), `| needs the later layer storage`},
	} {
		t.Run(name, func(t *testing.T) {
			o := repository(t, tt.changes)
			withSurvivors(&o)
			_, diags := Load(o)
			var all []string
			for _, d := range diags {
				all = append(all, render(d))
			}
			if words := strings.TrimPrefix(tt.want, "| "); !strings.Contains(strings.Join(all, "\n"), words) {
				t.Errorf("%q, want %q", all, words)
			}
		})
	}
}
