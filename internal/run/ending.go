package run

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// endingOf sums up a run, which ends with err.
func endingOf(r *Run, err error) *event.Ending {
	if cause := r.cause(); err != nil && cause != nil && !errors.Is(err, context.Canceled) {
		err = errors.Join(cause, err) // a failure after an interrupt is still an interrupt
	}
	e := event.Ending{Result: event.OutcomeSucceeded}
	switch {
	case r.Cluster.Options.Ending != nil:
		e = r.Cluster.Options.Ending(err)
	case err != nil:
		e = event.Ending{Result: event.OutcomeFailed, ExitCode: 1}
	}
	e.Seconds, e.Stages = time.Since(r.Began).Seconds(), map[event.Result]int{}
	r.emitting.Lock()
	for _, result := range r.results {
		e.Stages[result]++
	}
	r.emitting.Unlock()
	e.Causes = causes(err)
	return &e
}

// causes returns the root causes of a run's error: those of its stages that have one first. An interrupt
// is no cause.
func causes(err error) []event.Cause {
	all := []event.Cause{}
	for _, e := range flatten(err) {
		var stage *StageError
		switch {
		case errors.Is(e, context.Canceled):
		case errors.As(e, &stage):
			all = append(all, stage.causes()...)
		default:
			all = append(all, event.Cause{Text: e.Error()})
		}
	}
	slices.SortStableFunc(all, func(a, b event.Cause) int { return len(b.Gates) - len(a.Gates) })
	return all
}

// flatten returns the errors joined in err.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}

// causes returns why the stage failed: what its diagnosis found, else its error.
func (e *StageError) causes() []event.Cause {
	var all []event.Cause
	for _, f := range e.Findings {
		c := event.Cause{Text: f.Report.Cause, Next: f.Report.Next, Stages: []string{e.Stage}}
		if c.Text == "" {
			c.Text = f.Report.Seen
		}
		if f.Gate != "" {
			c.Gates = []string{f.Gate}
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		all = []event.Cause{{Text: e.Err.Error(), Stages: []string{e.Stage}}}
	}
	return all
}
