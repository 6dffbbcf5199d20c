package scaffold

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/fleet"
)

// someFleet has a wave with a canary, and one with an approval.
func someFleet() *Fleet {
	cluster := func(name, site string) fleet.Cluster {
		return fleet.Cluster{Name: name, Labels: map[string]string{fleet.RunnerLabel: site}}
	}
	f := &fleet.Fleet{Waves: []*fleet.Wave{
		{Name: "staging", Canary: 1, Soak: 15 * time.Minute, Parallel: 3,
			Clusters: []fleet.Cluster{cluster("blue/proxmox", "rome"), cluster("blue/metal", "")}},
		{Name: "production", Approval: true, Pause: time.Hour,
			Clusters: []fleet.Cluster{cluster("green/metal", "milan")}},
	}}
	return &Fleet{Parts: f.Parts(func(string) bool { return true }), Touched: f.Clusters(),
		Child: "castle ci gitlab --fleet"}
}

// fleetWorkflow is a part of what GitHub reads of castle-fleet.yml.
type fleetWorkflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		If          string
		Needs       []string
		RunsOn      any `json:"runs-on"`
		Environment string
		Strategy    struct {
			FailFast    *bool `json:"fail-fast"`
			MaxParallel int   `json:"max-parallel"`
		}
		Concurrency struct {
			Group            string
			CancelInProgress *bool `json:"cancel-in-progress"`
		}
		Steps []struct{ Uses, Run string }
	}
}

func TestWavesOfAWorkflow(t *testing.T) {
	p := pipelines()["several"]
	p.Fleet = someFleet()
	var w fleetWorkflow
	parse(t, written(t, 0, p, "."), &w)
	if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
		t.Errorf("permissions %v", w.Permissions)
	}
	for id, needs := range map[string]string{
		"changed": "", "plan": "changed", "wave-staging-canary": "changed",
		"wave-staging":     "changed wave-staging-canary",
		"begin-production": "changed wave-staging-canary wave-staging",
		"wave-production":  "changed wave-staging-canary wave-staging begin-production",
		"summary":          "changed wave-staging-canary wave-staging wave-production",
	} {
		job, has := w.Jobs[id]
		if got := strings.Join(job.Needs, " "); !has || got != needs {
			t.Errorf("%s: %t, needs %q, want %q", id, has, got, needs)
		}
		changes := strings.HasPrefix(id, "wave-")
		if c := job.Concurrency; c.CancelInProgress == nil || *c.CancelInProgress ||
			changes && c.Group != "castle-${{ matrix.id }}-change" {
			t.Errorf("%s: concurrency %+v", id, c)
		}
		if changes && (job.Environment != "${{ matrix.id }}" || job.Strategy.FailFast == nil ||
			*job.Strategy.FailFast || !strings.Contains(job.If, "!failure()") ||
			!strings.Contains(job.If, "github.event_name != 'pull_request'")) {
			t.Errorf("%s: %+v", id, job)
		}
		for _, step := range job.Steps {
			if strings.Contains(step.Run, "${{") {
				t.Errorf("%s: an expression in a script: %s", id, step.Run)
			}
		}
	}
	if n := len(w.Jobs); n != 7 {
		t.Errorf("%d jobs", n)
	}
	if e := w.Jobs["begin-production"].Environment; e != "fleet-production" {
		t.Errorf("the approval is in the environment %q", e)
	}
	if n := w.Jobs["wave-staging"].Strategy.MaxParallel; n != 3 {
		t.Errorf("max-parallel %d", n)
	}
	if !strings.Contains(w.Jobs["changed"].If, "head.repo.full_name == github.repository") {
		t.Error("a fork's pull request would run")
	}
}

func TestLegsOfAMatrix(t *testing.T) {
	f := someFleet()
	all := fleet.Names(f.Touched)
	want := []Leg{{"blue/proxmox", "blue-proxmox", "BLUE_PROXMOX_", "rome"},
		{"blue/metal", "blue-metal", "BLUE_METAL_", "self-hosted"},
		{"green/metal", "green-metal", "GREEN_", "milan"}}
	if got := Legs(f.Touched, all); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := Legs(nil, all); got == nil {
		t.Error("no cluster is no list: null instead of []")
	}
}

func TestWavesOfGitLabAreThoseOfTheChange(t *testing.T) {
	p := pipelines()["one cluster"]
	p.Runner, p.Fleet = "castle", someFleet()
	p.Fleet.Since = "main"
	p.Fleet.Parts = p.Fleet.Parts[1:] // no canary is touched
	p.Fleet.Parts[1].Clusters = nil
	text, err := os.ReadFile(written(t, 1, p, "."))
	if err != nil {
		t.Fatal(err)
	}
	var jobs map[string]any
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "!reference ", "")), &jobs); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"plan": true, "staging": true, "staging-canary": false,
		"production": false, "production: approve": false, "summary": true, "changed clusters": false} {
		if _, has := jobs[name]; has != want {
			t.Errorf("job %s: %t", name, has)
		}
	}
}
