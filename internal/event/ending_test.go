package event_test

import (
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/event"
)

func TestTheTextsOfAnEndingAreMasked(t *testing.T) {
	e := event.Event{Kind: event.RunEnded, Ending: &event.Ending{
		Causes: []event.Cause{{Text: "hunter2 is refused", Next: "try hunter2", Stages: []string{"hunter2"}}},
		Resume: "castle --state-dir hunter2",
	}}
	masked := e.Masked(func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }).Ending
	c := masked.Causes[0]
	if c.Text != "*** is refused" || c.Next != "try ***" || masked.Resume != "castle --state-dir ***" {
		t.Errorf("masked: %+v", masked)
	}
	if c.Stages[0] != "hunter2" || e.Ending.Causes[0].Text != "hunter2 is refused" {
		t.Errorf("the name of a stage or the event itself is masked: %+v, %+v", masked, e.Ending)
	}
}
