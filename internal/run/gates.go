package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// GateError is the error of a gate that did not open.
type GateError struct {
	Gate string
	Err  error

	Finding *Finding // its diagnosis at the timeout; may be nil
}

func (e *GateError) Error() string { return e.Err.Error() }

func (e *GateError) Unwrap() error { return e.Err }

// BindGate binds a stage's gate to the cluster and to the outputs that are known so far.
func BindGate(r *Run, s *config.Stage, g *config.Gate) (gate.Gate, error) {
	values, diags := g.Values(r.Outputs.Scope(s))
	if diags.HasErrors() {
		return gate.Gate{}, diags
	}
	return g.Type.New(g.Name(), r.Outputs.Target(), values)
}

// FirstClosedGate checks each gate once, in parallel. It returns the first closed one in the order of the
// stage's file, or nil if all are open.
func FirstClosedGate(ctx context.Context, r *Run, s *config.Stage, gates []*config.Gate) *GateError {
	for i, err := range Each(gates, func(g *config.Gate) error { return CheckGate(ctx, r, s, g) }) {
		if err != nil {
			return &GateError{Gate: gates[i].Name(), Err: err}
		}
	}
	return nil
}

// CheckGate checks one gate once.
func CheckGate(ctx context.Context, r *Run, s *config.Stage, g *config.Gate) error {
	bound, err := BindGate(r, s, g)
	if err != nil {
		return err
	}
	return bound.Check(ctx)
}

// WaitGates waits until every gate is open or has timed out.
func WaitGates(ctx context.Context, r *Run, s *config.Stage, gates []*config.Gate) error {
	if len(gates) == 0 {
		return nil
	}
	return r.Step(s.Name, s.Layer, "gates", func() error {
		return errors.Join(Each(gates, func(g *config.Gate) error { return WaitGate(ctx, r, s, g) })...)
	})
}

// WaitGate binds a gate and waits until it is open or has timed out.
func WaitGate(ctx context.Context, r *Run, s *config.Stage, g *config.Gate) error {
	bound, err := BindGate(r, s, g)
	if err != nil {
		return &GateError{Gate: g.Name(), Err: err}
	}
	return WaitBound(ctx, r, s, g, bound)
}

// WaitBound waits for a gate that is bound already, and diagnoses it when it times out.
func WaitBound(ctx context.Context, r *Run, s *config.Stage, g *config.Gate, bound gate.Gate) error {
	err := gate.Wait(ctx, bound, g.Policy,
		r.listener(event.Event{Layer: s.Layer, Stage: s.Name, Gate: g.Name()}))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err // the run was stopped, not the gate closed
	}
	closed := &GateError{Gate: g.Name(), Err: err}
	closed.Finding = diagnoseNow(ctx, g, bound, closed)
	return closed
}

// listener turns the progress of a wait into events; of names the stage and gate.
func (r *Run) listener(of event.Event) gate.Listener {
	say := func(kind event.Kind, text string) {
		e := of
		e.Kind, e.Text = kind, text
		r.Emit(e)
	}
	return gate.Listener{
		Answer: func(closed error) {
			if closed == nil {
				say(event.GateOpen, "")
				return
			}
			say(event.GateClosed, closed.Error())
		},
		Reconcile: func(did string, err error) {
			if did != "" {
				say(event.ReconcileTriggered, did)
			}
			if err != nil {
				say(event.ReconcileTriggered, "cannot trigger a reconcile: "+err.Error())
			}
		},
	}
}

// Each calls do for all items in parallel and returns the results in the order of the items.
func Each[T, R any](items []T, do func(T) R) []R {
	answers := make([]R, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { answers[i] = do(item) })
	}
	all.Wait()
	return answers
}

// TimeoutError is the cause of a stage's context that ended because the stage's time was up.
type TimeoutError struct{ After time.Duration }

func (e TimeoutError) Error() string { return "timed out after " + e.After.String() }

// StageNeeds returns the stages that a stage needs, as the edges of a graph.
func StageNeeds(s *config.Stage) []*config.Stage { return s.Needs }

// DeferredGates returns the gates that wait for stages other than their own.
func DeferredGates(s *config.Stage) []*config.Gate {
	return slices.DeleteFunc(slices.Clone(s.Gates), func(g *config.Gate) bool { return len(g.Needs) == 0 })
}

// ImmediateGates returns the gates that castle checks as soon as their stage is applied.
func ImmediateGates(s *config.Stage) []*config.Gate {
	return slices.DeleteFunc(slices.Clone(s.Gates), func(g *config.Gate) bool { return len(g.Needs) > 0 })
}
