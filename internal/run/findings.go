package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// A stage that failed is explained as far as its surroundings can tell, and
// castle leaves everything that it saw in the run's folder. Explaining changes
// nothing: the stage has failed already, with the same error and exit code, and
// an interrupt ends it at once.

// diagnosisTime bounds what is asked about one failed stage.
const DiagnosisTime = 15 * time.Second

// bounded asks, and leaves alone whoever does not come back in time.
func Bounded(ctx context.Context, ask func(context.Context) gate.Diagnosis) gate.Diagnosis {
	found := make(chan gate.Diagnosis, 1)
	go func() { found <- ask(ctx) }()
	select {
	case d := <-found:
		return d
	case <-ctx.Done():
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return gate.Diagnosis{} // an interrupt waits for nobody
	}
	select {
	case d := <-found: // it was stopped and has something all the same
		return d
	case <-time.After(time.Second):
		return gate.Diagnosis{}
	}
}

// masked is a diagnosis without secrets; nil stays nil.
func (r *Run) MaskDiagnosis(d *event.Diagnosis) *event.Diagnosis {
	if d == nil {
		return nil
	}
	hidden := *d
	for _, text := range []*string{&hidden.Waited, &hidden.Seen, &hidden.Cause, &hidden.Next} {
		*text = r.Cluster.Masker.Hide(*text)
	}
	return &hidden
}

// finding is one thing that failed and what was found about it.
type Finding struct {
	Report event.Diagnosis
	Gate   string                               // its name; empty for a step of Terraform's
	Kind   gate.Kind                            // of the gate's last answer
	Ask    func(context.Context) gate.Diagnosis // nil once it has been asked
	Found  gate.Diagnosis
}

// lookNow explains a gate at the moment when it is given up: the stage's others
// may go on for minutes, and what kept this one closed may be gone by then.
func diagnoseNow(ctx context.Context, g *config.Gate, bound gate.Gate, closed *GateError) *Finding {
	f := &Finding{Gate: g.Name(), Kind: gate.KindOf(closed), Report: Waited(g, closed)}
	if bound.Diagnose != nil {
		ctx, stop := context.WithTimeout(ctx, DiagnosisTime)
		defer stop()
		f.Found = Bounded(ctx, bound.Diagnose)
	}
	return f
}

// waited says what was waited for, what was there instead and since when.
func Waited(g *config.Gate, closed *GateError) event.Diagnosis {
	d := event.Diagnosis{Since: time.Now(), Seen: strings.TrimPrefix(closed.Error(), "gate "+g.Name()+": ")}
	d.Waited = fmt.Sprintf("gate %s: %s", g.Name(), g.Type.Summary)
	if timeout := new(gate.TimeoutError); errors.As(closed, &timeout) {
		d.Waited = fmt.Sprintf("gate %s, for %s: %s", g.Name(), timeout.Timeout, g.Type.Summary)
		d.Since = d.Since.Add(-timeout.Since)
		d.Seen = "no attempt finished"
		if timeout.Last != nil {
			d.Seen = timeout.Last.Error()
		}
	}
	return d
}

// empty reports whether there is nothing to say that Terraform has not said itself.
func (f *Finding) Empty() bool {
	return f.Gate == "" && f.Found.Cause == "" && len(f.Found.Files) == 0
}
