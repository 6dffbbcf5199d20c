// Package waiting checks the conditions under which a stage goes on: the preflights before a change, the
// guard during it, and the gates after it. It binds them to a run's outputs, waits, and explains a refusal.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
)

// GateError is the error of a gate that did not open.
type GateError struct {
	Gate string
	Err  error

	Finding *run.Finding // its diagnosis at the timeout; may be nil
}

func (e *GateError) Error() string { return e.Err.Error() }

func (e *GateError) Unwrap() error { return e.Err }

// NeverOpens reports whether no waiting opens the gate: somebody has to do something first, such as to delete
// the node that is left over.
func (e *GateError) NeverOpens() bool { return gate.IsPermanent(e.Err) }

// lastAnswer is the last answer of the gate's check; nil if none finished.
func (e *GateError) lastAnswer() error {
	if out, is := errors.AsType[*gate.TimeoutError](e.Err); is {
		return out.Last
	}
	return e.Err
}

// reason is the error without the gate's name.
func (e *GateError) reason() string { return strings.TrimPrefix(e.Error(), "gate "+e.Gate+": ") }

// BindGate binds a stage's gate to the cluster and to the outputs that are known so far. In a run that holds
// the lock, a gate of data that opens is recorded: applications may change them from then on.
func BindGate(r *run.Run, s *config.Stage, g *config.Gate) (gate.Gate, error) {
	values, diags := g.Values(r.Outputs.Scope(s))
	if diags.HasErrors() {
		return gate.Gate{}, diags
	}
	bound, err := g.Type.New(g.Name(), r.Outputs.Target(), values)
	if check := bound.Check; err == nil && g.OfData && r.ID != "" {
		bound.Check = func(ctx context.Context) error {
			if err := check(ctx); err != nil {
				return err
			}
			return r.ProveBirth(g.Label)
		}
	}
	return bound, err
}

// FirstClosedGate checks each gate once, in parallel. It returns the first closed one in the order of the
// stage's file, or nil if all are open.
func FirstClosedGate(ctx context.Context, r *run.Run, s *config.Stage, gates []*config.Gate) *GateError {
	for i, err := range run.Each(gates, func(g *config.Gate) error { return CheckGate(ctx, r, s, g) }) {
		if err != nil {
			return &GateError{Gate: gates[i].Name(), Err: err}
		}
	}
	return nil
}

// CheckGate checks one gate once.
func CheckGate(ctx context.Context, r *run.Run, s *config.Stage, g *config.Gate) error {
	bound, err := BindGate(r, s, g)
	if err != nil {
		return err
	}
	return bound.Check(ctx)
}

// ForGates waits until all gates are open. The first that fails ends the wait: nothing can make the stage
// ready any more. The others are then checked one last time, for the diagnosis.
func ForGates(ctx context.Context, r *run.Run, s *config.Stage, gates []*config.Gate) error {
	if len(gates) == 0 {
		return nil
	}
	return r.GatesStep(s.Name, s.Layer, len(gates), func() error {
		return waitTogether(gates, func(g *config.Gate, failed func() bool) error {
			return waitGate(ctx, r, s, g, failed)
		})
	})
}

// waitTogether waits for gates in parallel until one fails. wait calls failed when its gate does, which
// reports whether it is the first.
func waitTogether(gates []*config.Gate, wait func(g *config.Gate, failed func() bool) error) error {
	gaveUp, once := make(chan struct{}), atomic.Bool{}
	failed := func() (first bool) {
		if first = once.CompareAndSwap(false, true); first {
			close(gaveUp)
		}
		return first
	}
	return joinGates(run.Each(gates, func(g *config.Gate) error {
		together := *g
		together.Policy.GiveUp = gaveUp
		return wait(&together, failed)
	}))
}

// GatesError is the error of a stage whose gates did not open.
type GatesError struct {
	Failed []*GateError // they timed out first, or can never open
	Others []*GateError // closed, too, and not waited for any longer
}

// mostNamed is how many gates a message names; it counts more of them.
const mostNamed = 3

func (e *GatesError) Error() string {
	lines := xslices.Map(e.Failed, func(failed *GateError) string { return failed.Error() })
	names := xslices.Map(e.Others, func(other *GateError) string { return other.Gate })
	switch n := len(names); {
	case n > mostNamed:
		lines = append(lines, fmt.Sprintf("castle no longer waits for %d further gates", n))
	case n > 0:
		lines = append(lines, "castle no longer waits for "+strings.Join(names, ", "))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors of all gates.
func (e *GatesError) Unwrap() []error {
	return xslices.Map(slices.Concat(e.Failed, e.Others), func(one *GateError) error { return one })
}

// joinGates joins the results of a stage's gates. The error of a run that was stopped stands beside them.
func joinGates(results []error) error {
	var rest []error
	closed := &GatesError{}
	for _, err := range results {
		one, is := err.(*GateError) //nolint:errorlint // waitBound returns it as it is
		switch {
		case !is:
			rest = append(rest, err)
		case isGivenUp(one):
			closed.Others = append(closed.Others, one)
		default:
			closed.Failed = append(closed.Failed, one)
		}
	}
	if len(closed.Failed)+len(closed.Others) > 0 {
		rest = append(rest, closed)
	}
	return errors.Join(rest...)
}

// ForGate waits until a gate is open or fails, and diagnoses a failure.
func ForGate(ctx context.Context, r *run.Run, s *config.Stage, g *config.Gate) error {
	return waitGate(ctx, r, s, g, func() bool { return true })
}

func waitGate(ctx context.Context, r *run.Run, s *config.Stage, g *config.Gate, failed func() bool) error {
	bound, err := BindGate(r, s, g)
	if err != nil {
		bound = gate.Gate{Name: g.Name(), Check: func(context.Context) error { return gate.Permanent(err) }}
	}
	return waitBound(ctx, r, s, g, bound, failed)
}

// waitBound calls failed before it diagnoses a gate that failed, which takes a while. failed reports whether
// the gate is the stage's first to fail. One that times out after that was not waited for any longer.
func waitBound(ctx context.Context, r *run.Run, s *config.Stage, g *config.Gate, bound gate.Gate,
	failed func() bool) error {
	of := event.Event{Layer: s.Layer, Stage: s.Name, Gate: g.Name()}
	err := gate.Wait(ctx, bound, g.Policy, listener(r, of, g.Policy.EffectiveTimeout()))
	if err == nil && bound.Convergence != nil {
		// Only the report lacks what cannot be read.
		if steps, unread := bound.Convergence(ctx); unread == nil {
			of.Kind, of.Flux = event.FluxConverged, &steps
			r.Emit(of)
		}
	}
	if err == nil || ctx.Err() != nil { // the run was stopped, not the gate closed
		return err
	}
	closed := &GateError{Gate: g.Name(), Err: err}
	if !isGivenUp(closed) {
		first := failed()
		if out, is := errors.AsType[*gate.TimeoutError](err); is && !first {
			out.GaveUp = true
		} else {
			of.Kind, of.Text = event.GateFailed, closed.reason()
			r.Emit(of)
		}
	}
	closed.Finding = diagnoseNow(ctx, g, bound, closed)
	return closed
}

// isGivenUp reports whether a gate was closed when another one failed.
func isGivenUp(err error) bool {
	e, is := errors.AsType[*gate.TimeoutError](err)
	return is && e.GaveUp
}

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

// NewFinding returns the finding of a closed gate before its diagnosis.
func NewFinding(g *config.Gate, closed *GateError) *run.Finding {
	return &run.Finding{Gate: g.Name(), Kind: gate.KindOf(closed), Report: waited(g, closed)}
}

// diagnoseNow diagnoses a gate when it times out: the stage's other gates may go on for minutes, and the
// cause may be gone by then.
func diagnoseNow(ctx context.Context, g *config.Gate, bound gate.Gate, closed *GateError) *run.Finding {
	f := NewFinding(g, closed)
	if bound.Diagnose != nil {
		ctx, stop := context.WithTimeout(ctx, DiagnosisTime)
		defer stop()
		f.Found = Bounded(ctx, func(ctx context.Context) gate.Diagnosis {
			return bound.Diagnose(ctx, closed.lastAnswer())
		})
	}
	return f
}

// waited reports the gate, its last answer and since when that was so.
func waited(g *config.Gate, closed *GateError) event.Diagnosis {
	d := event.Diagnosis{Since: time.Now(), Seen: closed.reason()}
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

// listener turns the progress of a wait into events of a run; of names the stage and gate.
func listener(r *run.Run, of event.Event, timeout time.Duration) gate.Listener {
	emit := func(kind event.Kind, text string) {
		e := of
		e.Kind, e.Text = kind, text
		r.Emit(e)
	}
	return gate.Listener{
		Answer: func(closed error) {
			if closed == nil {
				emit(event.GateOpen, "")
				return
			}
			e := of
			e.Kind, e.Text, e.TimeoutSeconds = event.GateClosed, closed.Error(), timeout.Seconds()
			e.Cause = gate.KindOf(closed).IsCause()
			r.Emit(e)
		},
		Reconcile: func(did string, err error) {
			if did != "" {
				emit(event.ReconcileTriggered, did)
			}
			if err != nil {
				emit(event.ReconcileTriggered, "cannot trigger a reconcile: "+err.Error())
			}
		},
	}
}
