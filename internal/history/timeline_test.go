package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// events makes events from lines "seconds kind stage details": the details are the step of a step, the
// address of a resource, the gate of a gate with its reason, and the text of any other event.
func events(lines string) (all []event.Event) {
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		var second int
		var kind, stage string
		n, _ := fmt.Sscan(line, &second, &kind, &stage)
		fields := strings.Fields(line)
		e := event.Event{Time: moment(second), Kind: event.Kind(kind)}
		if n == 3 && stage != "-" {
			e.Stage, e.Layer = stage, "layer of "+stage
		}
		detail, reason := "", ""
		if len(fields) > 3 {
			detail, reason = fields[3], strings.Join(fields[4:], " ")
		}
		switch e.Kind {
		case event.StepStarted, event.StepEnded:
			e.Step, e.Text = detail, reason
		case event.ResourceStarted, event.Resource:
			e.Address, e.Action, e.Text = detail, "create", reason
		case event.GateClosed, event.GateOpen, event.GateFailed:
			e.Gate, e.Text = detail, reason
		default:
			e.Text = strings.TrimSpace(detail + " " + reason)
		}
		if e.Kind == event.StepEnded { // every step begins two seconds before
			e.Seconds = 2
		}
		all = append(all, e)
	}
	return all
}

func moment(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }

// summary describes a stage: its result, its times, its steps, its gates.
func summary(s *history.Stage) string {
	second := func(at time.Time) string {
		if at.IsZero() {
			return "…"
		}
		return fmt.Sprint(at.Sub(began).Seconds())
	}
	text := strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Stage, s.Result, s.Reason))
	text += fmt.Sprintf(" [%s-%s]", second(s.Started), second(s.Ended))
	for _, p := range s.Steps {
		text += fmt.Sprintf(" %s[%s-%s]", p.Name, second(p.Started), second(p.Ended))
	}
	for _, g := range s.Gates {
		text += strings.TrimRight(fmt.Sprintf("; %s %s %s", g.Name, g.Result, g.Reason), " ")
		if !g.Closed.IsZero() {
			text += " since " + second(g.Closed)
		}
	}
	return text
}

func TestFold(t *testing.T) {
	for name, test := range map[string]struct {
		events string
		want   []string
	}{
		"each stage has its result, and why it failed or was skipped": {`
			1 stage_started machines
			2 step_started machines plan
			4 step_ended machines plan
			9 stage_ready machines
			9 stage_up_to_date seed
			10 stage_failed pool quota exceeded
			11 stage_skipped flux dependency pool failed
			12 stage_started late`,
			[]string{"machines ready [1-9] plan[2-4]", "seed up_to_date [9-9]",
				"pool failed quota exceeded [10-10]", "flux skipped dependency pool failed [11-11]",
				"late [12-12]"}},
		"the last result counts": {`
			0 stage_failed infisical token rotated
			5 stage_ready infisical`,
			[]string{"infisical ready [0-5]"}},
		"a preflight does not start a stage": {`
			0 step_started machines preflight
			2 step_ended machines preflight
			60 stage_started machines
			90 stage_ready machines`,
			[]string{"machines ready [60-90] preflight[0-2]"}},
		"nor one that is up to date, or skipped": {`
			0 step_started machines preflight
			2 step_ended machines preflight
			3 step_started pool preflight
			5 step_ended pool preflight
			60 stage_up_to_date machines
			61 stage_skipped pool dependency seed failed`,
			[]string{"machines up_to_date [60-60] preflight[0-2]",
				"pool skipped dependency seed failed [61-61] preflight[3-5]"}},
		"a stage that is up to date and runs again starts then": {`
			0 stage_up_to_date infisical
			60 stage_started infisical
			62 stage_ready infisical`,
			[]string{"infisical ready [60-62]"}},
		"a stage that is created again after its destroy is neither gone nor ready before its end": {`
			0 stage_started machines
			9 stage_gone machines
			20 stage_started machines
			21 step_started machines apply`,
			[]string{"machines [0-21] apply[21-…]"}},
		"a gate has its newest reason, and the moment when it closed": {`
			0 stage_started metallb
			1 step_started metallb gates
			2 gate_closed metallb webhook no caBundle
			3 gate_open metallb crd
			5 gate_closed metallb webhook connection refused`,
			[]string{"metallb [0-5] gates[1-…]; webhook closed connection refused since 2; crd open"}},
		"a gate that failed keeps its last reason": {`
			1 step_started metallb gates
			2 gate_closed metallb webhook no caBundle
			9 gate_failed metallb webhook timed out
			9 stage_failed metallb gate webhook: timed out`,
			[]string{"metallb failed gate webhook: timed out [1-9] gates[1-…]; " +
				"webhook failed no caBundle since 2"}},
		"a closed gate that makes castle apply a stage is closed since the check": {`
			1 gate_closed metallb webhook no caBundle
			2 stage_started metallb
			5 step_started metallb gates
			6 gate_closed metallb webhook no caBundle`,
			[]string{"metallb [2-6] gates[5-…]; webhook closed no caBundle since 1"}},
		"the gates of a ready stage are open": {`
			1 gate_closed metallb webhook no caBundle
			2 stage_ready metallb`,
			[]string{"metallb ready [1-2]; webhook closed no caBundle"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range history.Fold(events(test.events)).Whole.Stages {
				got = append(got, summary(s))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestAPartHasTheStagesOfItsSelection(t *testing.T) {
	all := events("0 run_started - recreate blue/proxmox\n1 stage_started old\n2 stage_gone old\n" +
		"3 stages_selected\n4 stage_started new\n5 run_ended - ok")
	all[3].Selection = &event.Selection{Command: "create", Stages: []event.SelectedStage{{Stage: "new"}}}
	run := history.Fold(all)
	if len(run.Whole.Stages) != 2 || len(run.Parts) != 2 || run.Part().Command != "create" {
		t.Errorf("got %+v", run)
	}
	if p := run.Part(); len(p.Stages) != 1 || !p.Stage("new").Selected || p.Stage("old") != nil {
		t.Errorf("the create has %+v", p.Stages)
	}
	if run.Title != "recreate blue/proxmox" || run.End == nil || !run.Ended.Equal(moment(5)) {
		t.Errorf("got %+v", run)
	}
}

func TestAStepHasItsProgress(t *testing.T) {
	for name, test := range map[string]struct {
		events           string
		done             int
		changing, closed string
	}{
		"resources": {`0 step_started machines apply
			1 resource_started machines vm1
			2 resource_started machines vm2
			3 resource machines vm1
			4 resource_started machines vm3`, 1, "vm2 vm3", ""},
		"a replacement is one resource": {`0 step_started machines apply
			1 resource_started machines vm
			2 resource machines vm
			3 resource_started machines vm`, 0, "vm", ""},
		"gates, the one first that is closed for longest": {`0 step_started metallb gates
			1 gate_closed metallb a reason
			2 gate_closed metallb b reason
			3 gate_open metallb c
			4 gate_open metallb a
			5 gate_closed metallb a again`, 1, "", "b a"},
		"gates that castle only checked do not count": {`0 gate_open metallb a
			1 step_started metallb gates
			2 gate_open metallb b`, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := history.Fold(events(test.events)).Whole.Stages[0]
			p := s.Progress(s.Step())
			var changing, closed []string
			for _, r := range p.Resources {
				changing = append(changing, r.Address)
			}
			for _, g := range p.Gates {
				closed = append(closed, g.Name)
			}
			if p.Done != test.done || strings.Join(changing, " ") != test.changing ||
				strings.Join(closed, " ") != test.closed {
				t.Errorf("%d done, %q in progress, %q closed", p.Done, changing, closed)
			}
		})
	}
}

func TestAStageWithDeferredGatesIsNotAtWorkBeforeTheirWait(t *testing.T) {
	s := history.Stage{GatesNeed: []string{"pool"}, Active: began, Last: &history.Step{Name: "apply"}}
	if !s.Deferred() || s.Working() {
		t.Error("it is at work after its apply")
	}
	if s.Last.Failure = "quota exceeded"; s.Deferred() || !s.Working() {
		t.Error("it is not at work after a failed apply")
	}
}

// A rollout reads what stages would do before it begins any, and ends with a create of all of them.
func TestALookAtAStageAndALaterPartAreNoTurn(t *testing.T) {
	all := events(`
		0 run_started -
		1 resource_started talos data.talos_machine_configuration.node
		2 resource talos data.talos_machine_configuration.node
		3 stage_started image
		4 stage_ready image
		5 stage_up_to_date keys
		37 step_started image preflight
		39 step_ended image preflight
		40 stage_up_to_date image
		40 stage_up_to_date keys`)
	for i := range all {
		if all[i].Stage == "talos" {
			all[i].Action = "read"
		}
	}
	var got []string
	for _, s := range history.Fold(all).Whole.Stages {
		got = append(got, fmt.Sprint(s.Stage, " ", s.Result, " ", s.Ended.Sub(s.Started)))
	}
	if want := []string{"image ready 1s", "keys up_to_date 0s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
