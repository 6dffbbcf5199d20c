package event

import "time"

// Span is what a run's events say of one stage.
type Span struct {
	Layer, Stage string
	Result       string // ready, current, gone, failed, interrupted, skipped; "" if it never ended
	Reason       string // why it failed or was skipped
	Started      time.Time
	Ended        time.Time
	Steps        map[string]time.Duration // by step: plan, apply, gates …

	began bool // it has started, and not only been asked something
}

// Timeline sums events up by stage, in the order in which the stages first appear.
func Timeline(events []Event) []*Span {
	var spans []*Span
	byName := map[string]*Span{}
	for _, e := range events {
		if e.Stage == "" {
			continue
		}
		s := byName[e.Stage]
		if s == nil {
			s = &Span{Layer: e.Layer, Stage: e.Stage, Started: e.Time, Steps: map[string]time.Duration{}}
			byName[e.Stage] = s
			spans = append(spans, s)
		}
		s.add(e)
	}
	return spans
}

func (s *Span) add(e Event) {
	if e.Kind == StageStarted && (s.Result == "" && !s.began || s.Result == "current") {
		// A preflight may have been asked long before; and what was up to date is
		// read again when something is about to use it.
		s.Started, s.began, s.Result = e.Time, true, ""
	}
	s.Ended = e.Time
	if e.Kind == StepEnded {
		s.Steps[e.Step] += time.Duration(e.Seconds * float64(time.Second))
	}
	if r, ended := results()[e.Kind]; ended {
		s.Result, s.Reason = r, ""
		if e.Kind == StageFailed || e.Kind == StageSkipped {
			s.Reason = e.Text
		}
	}
}

func results() map[Kind]string {
	return map[Kind]string{
		StageReady: "ready", StageCurrent: "current", StageGone: "gone",
		StageFailed: "failed", StageSkipped: "skipped", StageStopped: "interrupted",
	}
}
