package stages_test

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

var (
	heading = regexp.MustCompile("^### `(.+)`$")
	row     = regexp.MustCompile("^\\| `([a-z_]+\\.[a-z_]+)`( \\(\\d+ min\\))? \\| *([^|]*)")
)

// waits are a stage's gates and how long each may take: "workload.speaker" 10 min.
type waits map[string]string

// gates loads the clusters that castle ships, and with them every gate of the library as castle itself
// understands it, by stage.
func gates(t *testing.T) map[string]waits {
	t.Helper()
	found := map[string]waits{}
	for _, at := range []config.Options{{Cluster: "blue"}, {Cluster: "mini"}, {Cluster: "handover"},
		{Cluster: "tazlab"}, {Cluster: "cilium"}, {Cluster: "sources"}, {Cluster: "green"}, {Cluster: "csi"},
		{Cluster: "iron"}, {Cluster: "cilium", Vars: map[string]string{"cilium_bgp": "null"}}} {
		loaded, diags := config.Load(config.Options{
			Repository: "..", Cluster: at.Cluster, Vars: at.Vars,
			Gates:      cluster.GateTypes(),
			Preflights: cluster.PreflightTypes(), Exists: cluster.ExistsTypes(),
			Survivors: cluster.SurvivorTypes(),
			Library:   stages.Library, Templates: templates.Files,
		})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		for _, stage := range loaded.Stages {
			if found[stage.Source] == nil { // another cluster may have the stage, too
				found[stage.Source] = waits{}
			}
			for _, g := range stage.Gates {
				if g.Of != stage {
					continue // of what Flux brings; blue has the stage itself
				}
				found[stage.Source][g.Name()] = ""
				if g.Policy.Timeout > 0 {
					found[stage.Source][g.Name()] = fmt.Sprintf(" (%.0f min)", g.Policy.Timeout.Minutes())
				}
			}
		}
	}
	return found
}

// explained reads which gates of which stage the README explains.
func explained(t *testing.T) map[string]waits {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	found, stage := map[string]waits{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if h := heading.FindStringSubmatch(line); h != nil {
			stage, found[h[1]] = h[1], waits{}
		} else if r := row.FindStringSubmatch(line); r != nil {
			if r[3] == "" {
				t.Errorf("README: %s of %s proves nothing", r[1], stage)
			}
			found[stage][r[1]] = r[2]
		}
	}
	return found
}

func TestEveryStageThatMakesSomethingInTheClusterHasAGate(t *testing.T) {
	have := gates(t)
	gateless := []string{
		"engine/bootstrap-secrets",   // a Secret is there as soon as the API says so
		"engine/infisical-identity",  // likewise
		"platform/proxmox-machines",  // platform/talos configures them as soon as they answer
		"platform/existing-machines", // likewise
		"platform/tailscale",         // platform/talos waits for the devices
		"platform/hcloud-machines",   // likewise
		"platform/hcloud-image",      // it reads one that exists
		"platform/proxmox-image",     // Terraform ends when Proxmox has it
		// a secret is there as soon as Infisical says so, and nothing stands on it
		"platform/infisical-access",
	}
	for _, stage := range all(t) {
		names, used := have[stage]
		switch {
		case stage == "secrets/local": // in what `castle new --set secrets=local` makes, which is rehearsed
		case !used:
			t.Errorf("%s is in no cluster that castle ships: nobody loads it", stage)
		case len(names) == 0 && !strings.HasPrefix(stage, "secrets/") && !slices.Contains(gateless, stage):
			t.Errorf("%s has no gate: what needs it would start at once", stage)
		}
	}
}

func TestTheReadmeExplainsEveryGateAndNoOther(t *testing.T) {
	have, told := gates(t), explained(t)
	for stage, names := range have {
		for name, timeout := range names {
			if says, ok := told[stage][name]; !ok {
				t.Errorf("README does not say why %s has %s", stage, name)
			} else if says != timeout {
				t.Errorf("README: %s of %s waits%s, not%s", name, stage, cmp.Or(timeout, " ten minutes"),
					cmp.Or(says, " ten minutes"))
			}
		}
	}
	for stage, names := range told {
		for name := range names {
			if _, ok := have[stage][name]; !ok {
				t.Errorf("README explains %s of %s, which is not there", name, stage)
			}
		}
	}
}

func TestTheReadmeSpeaksOfTheVersionsThatTheStagesPin(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	pinned := 0
	for _, stage := range all(t) {
		for name, v := range module(t, stage).Variables {
			if !strings.HasSuffix(name, "_chart_version") &&
				!(name == "talos_version" && strings.HasPrefix(stage, "platform/")) {
				continue
			}
			pinned++
			if row := fmt.Sprintf("| `%s` | %v | ", stage, v.Default); !strings.Contains(string(text), row) {
				t.Errorf("README: no facts of %s %v: read again whether its gates "+
					"are right, and say so there", stage, v.Default)
			}
		}
	}
	if pinned < 5 {
		t.Errorf("only %d versions are pinned", pinned)
	}
}

func TestTheReadmeExplainsEveryQuestionOfAnAdoption(t *testing.T) {
	for _, kind := range cluster.ExistsTypes() {
		inTable(t, kind.Name, kind.Attributes)
	}
}

func TestTheReadmeExplainsEveryPreflight(t *testing.T) {
	for _, kind := range cluster.PreflightTypes() {
		inTable(t, kind.Name, kind.Attributes)
	}
}

// inTable holds that a table of the README has a row of that name with these arguments.
func inTable(t *testing.T, kind string, attributes map[string]gate.Attribute) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(readme), "\n| `"+kind+"` | ")
	row, _, _ = strings.Cut(row, "\n")
	for name := range attributes {
		if !strings.Contains(row, "`"+name+"`") {
			t.Errorf("README.md does not say that %s takes %s", kind, name)
		}
	}
}
