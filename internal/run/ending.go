package run

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/process"
)

// ending sums up the run, which ends with err.
func (r *Run) ending(err error) *event.Ending {
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

// EndedError is the error of a run whose ending was reported.
type EndedError struct{ Err error }

func (e *EndedError) Error() string { return e.Err.Error() }

// Unwrap returns the errors that the run's error joins.
func (e *EndedError) Unwrap() []error { return Joined(e.Err) }

// found is a root cause and the object that it is about, if that is known.
type found struct {
	cause event.Cause
	about string
}

// causes returns the root causes of a run's error. Those that close most gates come first. One that several
// stages have is told once. An interrupt is no cause.
func causes(err error) []event.Cause {
	var all []found
	for _, e := range Joined(err) {
		stage, is := e.(*StageError) //nolint:errorlint // an error around it says more
		switch {
		case errors.Is(e, context.Canceled):
		case is:
			all = append(all, stage.causes()...)
		default:
			all = append(all, found{cause: event.Cause{Text: e.Error()}})
		}
	}
	causes, about := []event.Cause{}, map[string]int{}
	for _, f := range all {
		i, known := about[f.about]
		if f.about == "" || !known {
			about[f.about] = len(causes)
			causes = append(causes, f.cause)
			continue
		}
		c := &causes[i]
		c.Stages, c.Gates = append(c.Stages, f.cause.Stages...), append(c.Gates, f.cause.Gates...)
		c.Follow += f.cause.Follow
	}
	closes := func(c event.Cause) int { return len(c.Gates) + c.Follow }
	slices.SortStableFunc(causes, func(a, b event.Cause) int { return closes(b) - closes(a) })
	return causes
}

// causes returns why the stage failed: what its diagnosis found, else its error.
func (e *StageError) causes() []found {
	var all []found
	for _, f := range e.Findings {
		c := event.Cause{Text: f.Report.Cause, Next: f.Report.Next, Stages: []string{e.Stage},
			Follow: f.Follow}
		if f.Gate != "" {
			c.Gates = append([]string{f.Gate}, f.Same...)
		}
		switch {
		case f.Gate == "" && c.Text != "": // Terraform's text names the object
			c.Text = e.Err.Error() + "\n  likely: " + c.Text
		case c.Text == "":
			c.Text = f.Report.Seen
		}
		all = append(all, found{c, f.Found.About})
	}
	if len(all) > 0 {
		return all
	}
	c := event.Cause{Text: e.Err.Error(), Stages: []string{e.Stage}}
	if e.Log != "" && !errors.As(e.Err, new(Refusal)) {
		c.Next = "less " + process.Quote(e.Log)
	}
	return []found{{cause: c}}
}

// Joined returns the errors that an error joins, at any depth, or else the error itself; none for nil.
func Joined(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Joined(e)...)
	}
	return all
}
