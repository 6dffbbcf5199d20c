package graph

import (
	"context"
	"errors"
)

// Skipped is a node that was not started because something it needs did not
// succeed. Cause is the node that failed first on the way.
type Skipped[N comparable] struct {
	Node, Cause N
}

// Walk runs do for every node, as soon as do has returned nil for all nodes that it needs. Nodes run in
// parallel without a limit; do may limit itself. Walk returns when no node is running any more.
//
// The error joins the failures of do in the order of nodes: root causes only, never skipped nodes. skipped,
// if not nil, receives each node that was not started. When ctx ends, nothing new starts, and the error
// holds the context's cause even if no node failed.
func Walk[N comparable](ctx context.Context, nodes []N, needs func(N) []N,
	do func(context.Context, N) error, skipped func(Skipped[N]),
) error {
	order, err := Sort(nodes, needs)
	if err != nil {
		return err
	}
	w := &walk[N]{
		nodes: nodes, needs: needs, do: do, skipped: skipped,
		state: map[N]state{}, errs: map[N]error{}, cause: map[N]N{},
		ended: make(chan ending[N]),
	}
	for _, n := range order {
		w.state[n] = waiting
	}
	for w.advance(ctx); w.running > 0; w.advance(ctx) {
		w.end(<-w.ended)
	}
	return w.result(ctx)
}

type state int

const (
	waiting state = iota
	running
	succeeded
	failed
	passed // not started
)

type ending[N comparable] struct {
	node N
	err  error
}

type walk[N comparable] struct {
	nodes   []N
	needs   func(N) []N
	do      func(context.Context, N) error
	skipped func(Skipped[N])
	state   map[N]state
	errs    map[N]error
	cause   map[N]N
	running int
	ended   chan ending[N]
}

// advance skips and starts every node that is decided now. Skipping one node can decide another, so it
// repeats until nothing changes.
func (w *walk[N]) advance(ctx context.Context) {
	for changed := true; changed; {
		changed = false
		for _, n := range w.nodes {
			if w.state[n] != waiting {
				continue
			}
			ready, cause, blocked := w.ask(n)
			switch {
			case blocked:
				w.skip(n, cause)
				changed = true
			case ready && ctx.Err() == nil:
				w.start(ctx, n)
			}
		}
	}
}

func (w *walk[N]) ask(n N) (ready bool, cause N, blocked bool) {
	ready = true
	for _, need := range w.needs(n) {
		st, member := w.state[need]
		switch {
		case !member || st == succeeded:
		case st == failed:
			return false, need, true
		case st == passed:
			return false, w.cause[need], true
		default:
			ready = false
		}
	}
	return ready, cause, false
}

func (w *walk[N]) start(ctx context.Context, n N) {
	w.state[n] = running
	w.running++
	go func() { w.ended <- ending[N]{n, w.do(ctx, n)} }()
}

func (w *walk[N]) end(e ending[N]) {
	w.running--
	w.state[e.node] = succeeded
	if e.err != nil {
		w.state[e.node], w.errs[e.node] = failed, e.err
	}
}

func (w *walk[N]) skip(n, cause N) {
	w.state[n], w.cause[n] = passed, cause
	if w.skipped != nil {
		w.skipped(Skipped[N]{Node: n, Cause: cause})
	}
}

func (w *walk[N]) result(ctx context.Context) error {
	var errs []error
	for _, n := range w.nodes {
		errs = append(errs, w.errs[n])
	}
	if ctx.Err() != nil {
		errs = append(errs, context.Cause(ctx))
	}
	return errors.Join(errs...)
}
