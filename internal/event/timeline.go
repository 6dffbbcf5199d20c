package event

import "time"

// Result is how a stage ended. The values are part of reports in JSON.
type Result string

// The results of a stage; a stage that never ended has none.
const (
	ResultReady       Result = "ready"
	ResultUpToDate    Result = "current"
	ResultGone        Result = "gone"
	ResultFailed      Result = "failed"
	ResultInterrupted Result = "interrupted"
	ResultSkipped     Result = "skipped"
)

// Span sums up the events of one stage.
type Span struct {
	Layer, Stage string
	Result       Result
	Reason       string // why it failed or was skipped
	Started      time.Time
	Ended        time.Time
	Steps        map[string]time.Duration // by step: plan, apply, gates …

	started bool // a preflight alone does not start a stage
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
	if e.Kind == StageStarted && (s.Result == "" && !s.started || s.Result == ResultUpToDate) {
		// A preflight may have run long before. A volatile stage that is up to date starts again when
		// another stage is about to use its outputs.
		s.Started, s.started, s.Result = e.Time, true, ""
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

func results() map[Kind]Result {
	return map[Kind]Result{
		StageReady: ResultReady, StageUpToDate: ResultUpToDate, StageGone: ResultGone,
		StageFailed: ResultFailed, StageSkipped: ResultSkipped, StageStopped: ResultInterrupted,
	}
}
