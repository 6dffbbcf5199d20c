package stages_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// gates loads the clusters that castle ships, and with them every gate of the
// library as castle itself understands it: "networking/metallb" has "workload.speaker".
func gates(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, name := range []string{"blue", "mini"} {
		cluster, diags := config.Load(config.Options{
			Repository: "..", Cluster: name, Gates: castle.GateTypes(), Preflights: castle.PreflightTypes(),
			Library: stages.Library, Templates: templates.Files,
		})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		for _, stage := range cluster.Stages {
			found[stage.Source] = nil
			for _, g := range stage.Gates {
				found[stage.Source] = append(found[stage.Source], g.Name())
			}
		}
	}
	return found
}

// explained reads which gates of which stage the README explains.
func explained(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile("^### `(.+)`$")
	row := regexp.MustCompile("^\\| `([a-z_]+\\.[a-z_]+)`[^|]*\\| *([^|]*)")
	found, stage := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if h := heading.FindStringSubmatch(line); h != nil {
			stage = h[1]
		} else if r := row.FindStringSubmatch(line); r != nil {
			if r[2] == "" {
				t.Errorf("README: %s of %s proves nothing", r[1], stage)
			}
			found[stage] = append(found[stage], r[1])
		}
	}
	return found
}

func TestEveryStageThatMakesSomethingInTheClusterHasAGate(t *testing.T) {
	have := gates(t)
	for _, stage := range all(t) {
		names, used := have[stage]
		switch {
		case !used:
			t.Errorf("%s is in no cluster that castle ships: nobody loads it", stage)
		case len(names) == 0 && !strings.HasPrefix(stage, "secrets/"):
			t.Errorf("%s has no gate: what needs it would start at once", stage)
		}
	}
}

func TestTheReadmeExplainsEveryGateAndNoOther(t *testing.T) {
	have, told := gates(t), explained(t)
	for stage, names := range have {
		for _, name := range names {
			if !slices.Contains(told[stage], name) {
				t.Errorf("README does not say why %s has %s", stage, name)
			}
		}
	}
	for stage, names := range told {
		for _, name := range names {
			if !slices.Contains(have[stage], name) {
				t.Errorf("README explains %s of %s, which is not there", name, stage)
			}
		}
	}
}
