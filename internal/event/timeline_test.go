package event_test

import (
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int, kind event.Kind, stage string, more ...func(*event.Event)) event.Event {
	e := event.Event{
		Time: began.Add(time.Duration(seconds) * time.Second), Kind: kind, Stage: stage,
		Layer: "layer of " + stage,
	}
	for _, m := range more {
		m(&e)
	}
	return e
}

func step(name string, seconds float64) func(*event.Event) {
	return func(e *event.Event) { e.Step, e.Seconds = name, seconds }
}

func text(s string) func(*event.Event) { return func(e *event.Event) { e.Text = s } }

func TestTimelineSumsAStageUp(t *testing.T) {
	spans := event.Timeline([]event.Event{
		at(0, event.RunStarted, ""),
		at(1, event.StageStarted, "machines"),
		at(2, event.StepEnded, "machines", step("plan", 1)),
		at(4, event.StepEnded, "machines", step("apply", 1.5)),
		at(5, event.StepEnded, "machines", step("apply", 0.5)),
		at(9, event.StageReady, "machines"),
		at(9, event.StageUpToDate, "seed"),
		at(10, event.StageFailed, "pool", text("quota exceeded")),
		at(11, event.StageSkipped, "flux", text("dependency pool failed")),
		at(12, event.StageStarted, "late"),
		at(13, event.RunEnded, ""),
	})
	var got []string
	for _, s := range spans {
		got = append(got, s.Stage+" "+string(s.Result)+" "+s.Reason)
	}
	want := []string{
		"machines ready ", "seed up_to_date ", "pool failed quota exceeded",
		"flux skipped dependency pool failed", "late  ",
	}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
	machines := spans[0]
	if machines.Layer != "layer of machines" || machines.Started != began.Add(time.Second) ||
		machines.Ended != began.Add(9*time.Second) {
		t.Errorf("machines: %+v", machines)
	}
	if machines.Steps["plan"] != time.Second || machines.Steps["apply"] != 2*time.Second {
		t.Errorf("steps: %v", machines.Steps)
	}
}

func TestTimelineKeepsTheLastResult(t *testing.T) {
	spans := event.Timeline([]event.Event{
		at(0, event.StageFailed, "infisical", text("token rotated")),
		at(5, event.StageReady, "infisical"),
	})
	if len(spans) != 1 || spans[0].Result != "ready" || spans[0].Reason != "" {
		t.Errorf("got %+v", spans[0])
	}
}

func TestAPreflightDoesNotStartAStage(t *testing.T) {
	spans := event.Timeline([]event.Event{
		at(0, event.StepStarted, "machines", step("preflight", 0)),
		at(1, event.StepEnded, "machines", step("preflight", 1)),
		at(60, event.StageStarted, "machines"),
		at(90, event.StageReady, "machines"),
	})
	if got, want := spans[0].Started, began.Add(time.Minute); got != want {
		t.Errorf("started at %s, want %s", got, want)
	}
}

func TestAnUpToDateStageThatRunsAgainStartsThen(t *testing.T) {
	spans := event.Timeline([]event.Event{
		at(0, event.StageUpToDate, "infisical"),
		at(60, event.StageStarted, "infisical"),
		at(62, event.StageReady, "infisical"),
	})
	if s := spans[0]; s.Ended.Sub(s.Started) != 2*time.Second || s.Result != "ready" {
		t.Errorf("got %+v", s)
	}
}
