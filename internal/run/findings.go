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

// DiagnosisTime bounds the diagnosis of one failed stage.
const DiagnosisTime = 15 * time.Second

// Bounded runs a diagnosis, and abandons one that does not return in time.
func Bounded(ctx context.Context, inspect func(context.Context) gate.Diagnosis) gate.Diagnosis {
	found := make(chan gate.Diagnosis, 1)
	go func() { found <- inspect(ctx) }()
	select {
	case d := <-found:
		return d
	case <-ctx.Done():
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return gate.Diagnosis{} // an interrupt does not wait
	}
	select {
	case d := <-found: // it was stopped and has a partial result
		return d
	case <-time.After(time.Second):
		return gate.Diagnosis{}
	}
}

// Finding is a closed gate or failed step, and its diagnosis.
type Finding struct {
	Report  event.Diagnosis
	Gate    string                               // its name; empty for a step of Terraform's
	Kind    gate.Kind                            // of the gate's last answer
	Inspect func(context.Context) gate.Diagnosis // nil once Found is set
	Found   gate.Diagnosis
}

// NewFinding returns the finding of a closed gate before its diagnosis.
func NewFinding(g *config.Gate, closed *GateError) *Finding {
	return &Finding{Gate: g.Name(), Kind: gate.KindOf(closed), Report: waited(g, closed)}
}

// diagnoseNow diagnoses a gate when it times out: the stage's other gates may go on for minutes, and the
// cause may be gone by then.
func diagnoseNow(ctx context.Context, g *config.Gate, bound gate.Gate, closed *GateError) *Finding {
	f := NewFinding(g, closed)
	if bound.Diagnose != nil {
		ctx, stop := context.WithTimeout(ctx, DiagnosisTime)
		defer stop()
		f.Found = Bounded(ctx, bound.Diagnose)
	}
	return f
}

// waited reports the gate, its last answer and since when that was so.
func waited(g *config.Gate, closed *GateError) event.Diagnosis {
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

// Empty reports whether the finding adds nothing to Terraform's own error.
func (f *Finding) Empty() bool {
	return f.Gate == "" && f.Found.Cause == "" && len(f.Found.Files) == 0
}
