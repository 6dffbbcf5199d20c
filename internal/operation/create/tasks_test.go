package create

import (
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
)

// library has the shape of the stage library: a volatile and a local root, a platform with a preflight, two
// branches, and a root Kustomization with a late gate.
func library() map[string]*config.Stage {
	infisical := &config.Stage{Name: "infisical", Layer: "secrets", Volatile: true}
	keys := &config.Stage{Name: "keys", Layer: "secrets"}
	platform := &config.Stage{
		Name: "machines", Layer: "platform", Needs: []*config.Stage{infisical, keys},
		Preflights: []*config.Preflight{
			{Type: gate.PreflightType{Name: "vm_ids"}, Label: "free", Needs: []*config.Stage{infisical}},
		},
	}
	metallb := &config.Stage{Name: "metallb", Layer: "networking", Needs: []*config.Stage{platform}}
	pool := &config.Stage{Name: "address-pool", Layer: "networking", Needs: []*config.Stage{metallb}}
	sync := &config.Stage{
		Name: "sync", Layer: "gitops", Needs: []*config.Stage{platform},
		Gates: []*config.Gate{
			{Type: gate.Type{Name: "flux"}, Label: "converged", Needs: []*config.Stage{pool}},
		},
	}
	all := map[string]*config.Stage{}
	for _, s := range []*config.Stage{infisical, keys, platform, metallb, pool, sync} {
		all[s.Name] = s
	}
	return all
}

func tasksOf(chosen ...*config.Stage) map[string][]string {
	r := &creation{run: &run.Run{}}
	needs := map[string][]string{}
	for _, t := range r.createTasks(chosen) {
		names := []string{}
		for _, n := range t.needs {
			names = append(names, n.name)
		}
		needs[t.name] = names
	}
	return needs
}

func TestNothingIsChangedBeforeThePreflightsHavePassed(t *testing.T) {
	l := library()
	needs := tasksOf(l["infisical"], l["keys"], l["machines"], l["metallb"])
	if got, want := needs["preflight vm_ids.free"], []string{"infisical"}; !slices.Equal(got, want) {
		t.Errorf("the preflight waits for %v, want only what it reads from: %v", got, want)
	}
	for _, stage := range []string{"keys", "machines", "metallb"} {
		if !slices.Contains(needs[stage], "preflight vm_ids.free") {
			t.Errorf("%s starts before the preflight: it waits for %v", stage, needs[stage])
		}
	}
	if len(needs["infisical"]) > 0 {
		t.Errorf("infisical waits for %v; the preflight reads from it", needs["infisical"])
	}
}

// A stage that one preflight reads makes nothing before the others have passed.
func TestAStageThatAPreflightReadsFollowsTheOtherPreflights(t *testing.T) {
	l := library()
	talos := &config.Stage{Name: "talos", Layer: "platform", Needs: []*config.Stage{l["keys"]},
		Preflights: []*config.Preflight{{Type: gate.PreflightType{Name: "talos_maintenance"},
			Label: "machines", Needs: []*config.Stage{l["infisical"], l["keys"]}}}}
	needs := tasksOf(l["infisical"], l["keys"], talos, l["machines"])
	if got, want := needs["keys"], []string{"preflight vm_ids.free"}; !slices.Equal(got, want) {
		t.Errorf("keys waits for %v, want %v", got, want)
	}
	if got, want := needs["preflight talos_maintenance.machines"], []string{"infisical",
		"keys"}; !slices.Equal(got, want) {
		t.Errorf("the preflight of Talos waits for %v, want %v", got, want)
	}
}

func TestAGateWithNeedsIsJudgedAfterThemAndItsStageAppliedBefore(t *testing.T) {
	l := library()
	needs := tasksOf(l["infisical"], l["keys"], l["machines"], l["metallb"], l["address-pool"],
		l["sync"])
	if slices.Contains(needs["sync"], "address-pool") {
		t.Errorf("sync waits for the address pool before it is applied: %v", needs["sync"])
	}
	if got, want := needs["sync gates"], []string{"sync", "address-pool"}; !slices.Equal(got, want) {
		t.Errorf("the late gate waits for %v, want %v", got, want)
	}
}

func TestAStageThatWasNotSelectedIsAsked(t *testing.T) {
	l := library()
	needs := tasksOf(l["address-pool"])
	if got, want := needs["address-pool"], []string{"metallb (not selected)"}; !slices.Equal(got, want) {
		t.Errorf("address-pool waits for %v, want %v", got, want)
	}
	if _, question := needs["machines (not selected)"]; !question {
		t.Errorf("what metallb's own gates read from is not asked: %v", needs)
	}
}
