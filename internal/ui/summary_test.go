package ui_test

import (
	"bytes"
	"testing"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func TestASummaryTellsEachCauseOnce(t *testing.T) {
	var w bytes.Buffer
	l := ui.NewLines(&w, ui.Options{})
	if l.Summary() {
		t.Error("a run that has not ended was summed up")
	}
	l.Report(event.Event{Time: began, Kind: event.RunEnded, Ending: &event.Ending{
		Result: event.OutcomeFailed, ExitCode: 5, Seconds: 255,
		Stages: map[event.Result]int{event.ResultSkipped: 1, event.ResultReady: 9, event.ResultFailed: 1},
		Causes: []event.Cause{
			{Text: "the CA has expired", Next: "kubectl logs", Stages: []string{"longhorn"},
				Gates: []string{"webhook.mutator", "webhook.validator"}, Follow: 9},
			{Text: "the disk is full"},
		},
		Resume: "castle create blue",
	}})
	const want = `11 stages: 9 ready, 1 failed, 1 skipped in 4m15s
castle: stage longhorn: the CA has expired
  closes webhook.mutator, webhook.validator; 9 further gates follow from it
Next: kubectl logs
castle: the disk is full
Resume: castle create blue
`
	if !l.Summary() || w.String() != want {
		t.Errorf("got\n%s\nwant\n%s", w.String(), want)
	}
}
