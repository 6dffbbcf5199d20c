package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/history"
)

// stages are four stages; sync has a gate that waits for longhorn.
func stages() []*config.Stage {
	seed := &config.Stage{Name: "seed", Layer: "secrets"}
	machines := &config.Stage{Name: "machines", Layer: "platform", Needs: []*config.Stage{seed}}
	needs := []*config.Stage{machines}
	longhorn := &config.Stage{Name: "longhorn", Layer: "storage", Needs: needs}
	sync := &config.Stage{Name: "sync", Layer: "gitops", Needs: needs, Gates: []*config.Gate{
		{Type: gate.Type{Name: "flux"}, Label: "converged", Needs: []*config.Stage{longhorn}},
	}}
	return []*config.Stage{seed, machines, longhorn, sync}
}

const (
	raised = `0 stage_started seed
		3 stage_ready seed
		3 stage_started machines
		30 stage_ready machines
		30 stage_started longhorn
		31 stage_started sync
		31 step_started sync apply
		33 step_ended sync apply
		50 stage_ready longhorn
		50 step_started sync gates
		60 step_ended sync gates
		60 stage_ready sync`
	destroyed = `0 stage_started sync
		4 stage_gone sync
		0 stage_started longhorn
		9 stage_gone longhorn
		9 stage_started machines
		12 stage_gone machines`
)

func TestTheCriticalPath(t *testing.T) {
	inVain := strings.Replace(raised, "50 stage_ready longhorn", "55 stage_failed longhorn", 1)
	inVain = inVain[:strings.Index(inVain, "50 step_started")]
	for name, test := range map[string]struct{ kind, events, want string }{
		"a create":  {"create", raised, "seed 3s, machines 27s, longhorn 20s, sync gates 10s"},
		"a destroy": {"destroy", destroyed, "longhorn 9s, machines 3s"},
		"of a recreate, its create": {"recreate", destroyed + "\n13 receipt\n" + raised,
			"seed 3s, machines 27s, longhorn 20s, sync gates 10s"},
		"a stage that was skipped after a wait": {"create", inVain + "\n56 stage_skipped sync",
			"seed 3s, machines 27s, longhorn 25s"},
		"a stage that was interrupted in a wait": {"create", inVain + "\n56 stage_stopped sync",
			"seed 3s, machines 27s, longhorn 25s"},
	} {
		t.Run(name, func(t *testing.T) {
			p := history.PartOf(test.kind, stages(), events(test.events))
			path, _, err := p.CriticalPath()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range path {
				if p.Took(n) > 0 {
					got = append(got, strings.Replace(fmt.Sprint(n.Stage, n.Late), "false", " ", 1)+
						fmt.Sprint(p.Took(n)))
				}
			}
			text := strings.ReplaceAll(strings.Join(got, ", "), "true", " gates ")
			if text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
		})
	}
}

// create returns the events of a create of the stages.
func create(lines string) []event.Event {
	all := events("0 stages_selected\n" + lines)
	all[0].Selection = history.Selection("create", stages())
	return all
}

func TestTheEstimateIsTheLongestPathOfWhatIsLeft(t *testing.T) {
	usual := history.Learn(history.Fold(create(raised)))
	all := create(raised)
	for second, want := range map[int]time.Duration{
		0: 60 * time.Second, 10: 50 * time.Second, 40: 20 * time.Second, 55: 5 * time.Second,
	} {
		run := history.Fold(nil)
		for _, e := range all {
			if !e.Time.After(moment(second)) {
				run.Add(e)
			}
		}
		if got, known := run.Part().Left(moment(second), usual); !known || got != want {
			t.Errorf("at %ds: %s, %t; want %s", second, got, known, want)
		}
	}
	delete(usual, history.Subject{Command: "create", Stage: "longhorn"})
	if got, known := history.Fold(all[:2]).Part().Left(moment(1), usual); known {
		t.Errorf("%s without a usual duration of longhorn", got)
	}
	if got, known := history.Fold(all[:1]).Part().Left(moment(1), usual); known {
		t.Errorf("%s before a stage has begun", got)
	}
}

func TestUsualIsTheMedianOfTheRunsThatChangedTheStage(t *testing.T) {
	var runs []*history.Timeline
	usual := history.Subject{Command: "create", Stage: "seed"}
	for i, want := range []time.Duration{10 * time.Second, 30 * time.Second, 20 * time.Second} {
		took := []int{10, 50, 20}[i]
		runs = append(runs, history.Fold(create(fmt.Sprintf("0 stage_started seed\n%d stage_ready seed\n"+
			"%[1]d stage_up_to_date machines", took))))
		u := history.Learn(runs...)
		if got := u.Of(usual); got == nil || *got != want || len(u) != 2 {
			t.Errorf("%d runs: got %v, want %s", i+1, u, want)
		}
	}
	if got := history.Learn(runs...).Of(history.Subject{Stage: "machines"}); got != nil {
		t.Errorf("a stage that was up to date usually takes %s", *got)
	}
}

func TestDurationsAreThoseOfWhatWentWell(t *testing.T) {
	took := history.Fold(events(`0 stage_started metallb
		0 step_started metallb apply
		0 resource_started metallb chart
		4 resource metallb chart
		4 resource_started metallb crd
		5 resource metallb crd failed
		6 step_ended metallb apply
		6 step_started metallb gates
		9 gate_open metallb webhook
		9 gate_closed metallb speaker
		9 stage_failed metallb gate speaker`)).Durations()
	want := map[history.Subject]time.Duration{
		{Stage: "metallb", Address: "chart", Action: "create"}: 4 * time.Second,
		{Stage: "metallb", Gate: "webhook"}:                    3 * time.Second,
	}
	if fmt.Sprint(took) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", took, want)
	}
}
