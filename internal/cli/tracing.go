package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/operation/nuke"
	"github.com/ephemeral-castle/castle/internal/tracing"
)

// startTracing makes the tracer, if the environment asks for one. One that cannot be made is a note.
func startTracing(ctx context.Context, a *app) {
	var err error
	if a.tracer, err = tracing.New(ctx, a.environ, a.version); err != nil {
		noteTracing(a, err)
	}
}

// endTracing sends the spans that are left.
func endTracing(ctx context.Context, a *app) {
	if a.tracer == nil {
		return
	}
	if err := a.tracer.Close(ctx); err != nil {
		noteTracing(a, err)
	}
}

func noteTracing(a *app, err error) {
	a.interrupts.say(fmt.Sprintf("castle: note: the run's traces are incomplete: %v", err))
}

// traced returns a reporter that also builds the spans of the run.
func traced(a *app, next cluster.Reporter) cluster.Reporter {
	if a.tracer == nil {
		return next
	}
	return tracedReporter{a.tracer, next}
}

// tracedReporter passes events on to a tracer and to another reporter.
type tracedReporter struct {
	tracer *tracing.Tracer
	next   cluster.Reporter
}

// Report passes an event on.
func (r tracedReporter) Report(e event.Event) {
	r.tracer.Report(e)
	r.next.Report(e)
}

// tracedNuke runs a nuke, which has no events, and traces it as a run without stages.
func tracedNuke(ctx context.Context, a *app, n *nuke.Nuke) error {
	startTracing(ctx, a)
	report := func(e event.Event) {
		if e.Time = time.Now(); a.tracer != nil {
			a.tracer.Report(e)
		}
	}
	report(event.Event{Kind: event.RunStarted, Text: "nuke", Command: a.interrupts.command})
	err := n.Run(ctx, func(text string) {
		report(event.Event{Kind: event.Notice, Text: text})
		a.interrupts.say(text)
	})
	end := ending(err, a.interrupts.command)
	e := event.Event{Kind: event.RunEnded, Text: event.RunOK, Ending: &end}
	if err != nil {
		e.Text = err.Error()
	}
	report(e)
	return err
}

// untraced returns an environment without the variables of OpenTelemetry.
func untraced(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, "OTEL_")
	})
}
