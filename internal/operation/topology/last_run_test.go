package topology

import (
	"slices"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestAStageThatWaitsInVainIsNotOnTheCriticalPath(t *testing.T) {
	machines := &config.Stage{Name: "machines", Layer: "platform"}
	needs := []*config.Stage{machines}
	longhorn := &config.Stage{Name: "longhorn", Layer: "storage", Needs: needs}
	sync := &config.Stage{Name: "sync", Layer: "gitops", Needs: needs, Gates: []*config.Gate{
		{Type: gate.Type{Name: "flux"}, Label: "converged", Needs: []*config.Stage{longhorn}},
	}}
	stages := []*config.Stage{machines, longhorn, sync}
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
		if want := []Step{{Stage: "machines", Seconds: 30}, {Stage: "longhorn", Seconds: 25}}; err != nil ||
			!slices.Equal(path[:min(2, len(path))], want) {
			t.Errorf("%s: %v, %v", end, path, err)
		}
	}
}
