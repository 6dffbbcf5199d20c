package status

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestALookThatFindsAnotherMachineRefuses(t *testing.T) {
	r := &run.Run{Cluster: &cluster.Cluster{Masker: &secret.Masker{}}}
	s := &config.Stage{Name: "machines"}
	const other = "preflight vm_ids.free:\n  VM 421: the state knows this id as another machine"
	update := review.Change{Address: "a.vm", Action: "update", Attributes: []string{"disk"},
		Lost: []string{"disk x is detached"}}
	for _, look := range []review.Look{
		{State: review.Refused, Refused: []string{other}},
		{State: review.Drifted, Refused: []string{other}, Changes: []review.Change{update}},
	} {
		one := StageStatus{Name: "machines", State: Ready}
		looks := map[string]review.Look{"machines": look}
		if err := one.compare(t.Context(), r, s, &state.State{}, looks); err != nil {
			t.Fatal(err)
		}
		all := Status{Stages: []StageStatus{one}}
		all.sumUp()
		if one.State != Refused || one.Reason != other || !all.Any(Refused) || all.AllReady() ||
			all.OnlyGates() || all.Head.Ready.Status != False || all.Head.Pending.Status != True {
			t.Errorf("%s: %+v", look.State, all)
		}
	}
}

func TestADriftedMachineNamesTheDiskThatItHasLost(t *testing.T) {
	d := DriftedObject{Object: "a.vm", Fields: []string{"disk"}, Lost: []string{"disk x is detached"}}
	if text := d.String(); text != "a.vm has changed: disk; disk x is detached" {
		t.Error(text)
	}
}

func TestAStatusNamesWhyTheLastRunDidNotBeginAStage(t *testing.T) {
	selected := func(command string) event.Event {
		return event.Event{Kind: event.StagesSelected, Selection: &event.Selection{Command: command}}
	}
	of := func(kind event.Kind, text string) event.Event {
		return event.Event{Kind: kind, Stage: "machines", Text: text}
	}
	began := []event.Event{selected("create"), of(event.StageStarted, ""),
		of(event.StageFailed, "it would harm"),
		{Kind: event.RunEnded, Ending: &event.Ending{Result: event.OutcomeRefused}}}
	for name, test := range map[string]struct {
		events []event.Event
		want   StageStatus
	}{
		"refused": {[]event.Event{selected("create"), of(event.StageFailed, "VM 423 is foreign")},
			StageStatus{Refused: "VM 423 is foreign"}},
		"refused after its plan":           {began, StageStatus{State: Stale, Refused: "it would harm"}},
		"failed where another was refused": {began, StageStatus{State: Failed}},
		"refused, and the values are back": {began, StageStatus{State: Ready}},
		"skipped, and there is nothing to do": {[]event.Event{selected("create"),
			of(event.StageSkipped, "dependency seed failed")}, StageStatus{State: Ready}},
		"skipped": {[]event.Event{selected("create"), of(event.StageSkipped, "dependency seed failed")},
			StageStatus{Skipped: "dependency seed failed"}},
		"failed after it began": {[]event.Event{selected("create"), of(event.StageStarted, ""),
			of(event.StageFailed, "quota exceeded")}, StageStatus{}},
		"refused after its destroy": {[]event.Event{selected("destroy"), of(event.StageStarted, ""),
			of(event.StageGone, ""), selected("create"), of(event.StageFailed, "VM 423 is foreign")},
			StageStatus{Refused: "VM 423 is foreign"}},
	} {
		one := StageStatus{Name: "machines", State: test.want.State}
		one.remember(history.Fold(test.events))
		if one.Refused != test.want.Refused || one.Skipped != test.want.Skipped {
			t.Errorf("%s: refused %q, skipped %q", name, one.Refused, one.Skipped)
		}
	}
}
