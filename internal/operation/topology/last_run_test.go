package topology

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/graph"
)

// stagesOf makes stages of lines such as "networking/pool 3 metallb | 2 sync": duration and needs, then
// those of the late gate.
func stagesOf(lines string) (all []*config.Stage, weight func(measured) time.Duration) {
	byName, took := map[string]*config.Stage{}, map[string]time.Duration{}
	each := func(visit func(s *config.Stage, own, late []string)) {
		for line := range strings.Lines(lines) {
			own, late, _ := strings.Cut(line, "|")
			fields := strings.Fields(own)
			layer, name, _ := strings.Cut(fields[0], "/")
			if byName[name] == nil {
				byName[name] = &config.Stage{Name: name, Layer: layer}
				all = append(all, byName[name])
			}
			visit(byName[name], fields[1:], strings.Fields(late))
		}
	}
	each(func(*config.Stage, []string, []string) {}) // a line may need a later one
	named := func(names []string) (stages []*config.Stage) {
		for _, name := range names {
			stages = append(stages, byName[name])
		}
		return stages
	}
	each(func(s *config.Stage, own, late []string) {
		took[measured{stage: s}.key()], _ = time.ParseDuration(own[0] + "s")
		s.Needs = named(own[1:])
		if len(late) > 0 {
			took[measured{s, true}.key()], _ = time.ParseDuration(late[0] + "s")
			s.Gates = []*config.Gate{
				{Type: gate.Type{Name: "flux"}, Label: "converged", Needs: named(late[1:])},
			}
		}
	})
	return all, func(n measured) time.Duration { return took[n.key()] }
}

func TestLayerByLayerTakesAsLongAsTheScript(t *testing.T) {
	for name, c := range map[string]struct {
		stages        string
		path, layered time.Duration
	}{
		"nothing": {},
		"what could run at once runs one after the other": {
			`secrets/vault 2
			secrets/vault-jwt 5
			platform/machines 30 vault
			engine/secret-engine 4 vault`, 32, 41,
		},
		"the last three layers run at once, a chain each": {
			`platform/machines 30
			networking/metallb 10 machines
			networking/pool 5 metallb
			storage/longhorn 20 machines
			gitops/flux 4 machines
			gitops/other 7 machines`, 50, 50,
		},
		"inside a chain a stage waits for one that it does not need": {
			`platform/machines 30
			networking/metallb 10 machines
			networking/ingress 15 machines
			storage/longhorn 20 machines`, 50, 55,
		},
		"no chain begins before the engine is ready, needed or not": {
			`platform/machines 30
			engine/operator 8 machines
			storage/longhorn 20 machines`, 50, 58,
		},
		"chains that need each other wait for each other": {
			`platform/machines 30
			storage/longhorn 20 machines
			networking/metallb 10 machines
			networking/backup-address 5 longhorn
			gitops/flux 4 machines
			gitops/sync 6 flux backup-address`, 61, 61,
		},
		"whatever the order in which they are listed": {
			`networking/pool 5 metallb
			networking/metallb 10 machines
			engine/store 3 operator
			engine/operator 8 machines
			platform/machines 30`, 45, 56,
		},
		"a late gate is waited for by what comes after its stage": {
			`platform/machines 30
			networking/metallb 10 machines
			storage/longhorn 20 machines
			gitops/sync 3 machines | 6 metallb longhorn
			gitops/notices 9 machines`, 56, 65,
		},
		"a late gate of an earlier layer holds the next one back": {
			`platform/machines 30
			engine/operator 2 machines | 7 machines
			networking/metallb 10 machines`, 40, 49,
		},
		"a late gate may wait for a later stage of its own layer": {
			`gitops/notices 3 | 2 sync
			gitops/sync 4`, 6, 9,
		},
	} {
		t.Run(name, func(t *testing.T) {
			stages, weight := stagesOf(c.stages)
			nodes := measurable(stages)
			layered, err := layerByLayer(nodes, weight)
			if err != nil || layered != c.layered*time.Second {
				t.Errorf("layer by layer: %s, %v; want %ds", layered, err, c.layered)
			}
			if _, path, err := graph.CriticalPath(nodes, measured.needs, weight); err != nil ||
				path != c.path*time.Second {
				t.Errorf("critical path: %s, %v; want %ds", path, err, c.path)
			}
		})
	}
}

func TestAStageThatWaitsInVainIsNotOnTheCriticalPath(t *testing.T) {
	stages, _ := stagesOf(`platform/machines 0
		storage/longhorn 0 machines
		gitops/sync 0 machines | 0 longhorn`)
	at := func(second int, kind event.Kind, stage, step string) event.Event {
		return event.Event{Time: time.Unix(int64(second), 0), Kind: kind, Stage: stage, Step: step}
	}
	for _, end := range []event.Kind{event.StageSkipped, event.StageStopped} {
		path, err := CriticalPath("create", []event.Event{
			at(0, event.StageStarted, "machines", ""), at(30, event.StageReady, "machines", ""),
			at(30, event.StageStarted, "longhorn", ""), at(31, event.StageStarted, "sync", ""),
			at(31, event.StepStarted, "sync", "apply"), at(33, event.StepEnded, "sync", "apply"),
			at(55, event.StageFailed, "longhorn", ""), at(56, end, "sync", ""),
		}, &config.Cluster{Stages: stages})
		if want := []Step{{"machines", false, 30}, {"longhorn", false, 25}}; err != nil ||
			!slices.Equal(path[:min(2, len(path))], want) {
			t.Errorf("%s: %v, %v", end, path, err)
		}
	}
}
