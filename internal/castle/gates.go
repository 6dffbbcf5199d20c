package castle

import (
	"context"
	"errors"
	"sync"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// gateOf binds a stage's gate to the cluster and to what the stages have said.
func (r *run) gateOf(s *config.Stage, g *config.Gate) (gate.Gate, error) {
	values, diags := g.Values(r.said.scope(s))
	if diags.HasErrors() {
		return gate.Gate{}, diags
	}
	return g.Type.New(g.Name(), r.said.target(), values)
}

// ask asks each gate once, side by side, and returns the first closed one in
// the order of the stage's file, nil if all are open.
func (r *run) ask(ctx context.Context, s *config.Stage, gates []*config.Gate) *GateError {
	for i, err := range each(gates, func(g *config.Gate) error { return r.askOne(ctx, s, g) }) {
		if err != nil {
			return &GateError{Gate: gates[i].Name(), Err: err}
		}
	}
	return nil
}

func (r *run) askOne(ctx context.Context, s *config.Stage, g *config.Gate) error {
	bound, err := r.gateOf(s, g)
	if err != nil {
		return err
	}
	return bound.Check(ctx)
}

// judge waits until every gate is open.
func (r *run) judge(ctx context.Context, s *config.Stage, gates []*config.Gate) error {
	if len(gates) == 0 {
		return nil
	}
	return r.step(s.Name, s.Layer, "gates", func() error {
		return errors.Join(each(gates, func(g *config.Gate) error { return r.wait(ctx, s, g) })...)
	})
}

func (r *run) wait(ctx context.Context, s *config.Stage, g *config.Gate) error {
	bound, err := r.gateOf(s, g)
	if err != nil {
		return &GateError{Gate: g.Name(), Err: err}
	}
	return r.waitFor(ctx, s, g, bound)
}

// waitFor waits for a gate that is bound already, and explains one that it gives up.
func (r *run) waitFor(ctx context.Context, s *config.Stage, g *config.Gate, bound gate.Gate) error {
	err := gate.Wait(ctx, bound, g.Policy, r.listen(event.Event{Layer: s.Layer, Stage: s.Name, Gate: g.Name()}))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err // the run was stopped, not the gate closed
	}
	closed := &GateError{Gate: g.Name(), Err: err}
	closed.found = lookNow(ctx, g, bound, closed)
	return closed
}

// listen makes events of what a wait learns and does; of holds whose it is.
func (r *run) listen(of event.Event) gate.Listener {
	say := func(kind event.Kind, text string) {
		e := of
		e.Kind, e.Text = kind, text
		r.emit(e)
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

// judgeLate waits for the gates that had to wait for other stages; the stage is
// ready when they are open.
func (r *creation) judgeLate(ctx context.Context, s *config.Stage, gates []*config.Gate) error {
	if err := r.judge(ctx, s, gates); err != nil {
		return err
	}
	return r.settle(ctx, s)
}

// each calls do for all items side by side and returns the answers in their order.
func each[T, R any](items []T, do func(T) R) []R {
	answers := make([]R, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { answers[i] = do(item) })
	}
	all.Wait()
	return answers
}
