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
	if _, err := Sort(nodes, needs); err != nil {
		return err
	}
	w := &walk[N]{
		nodes: nodes, do: do, skipped: skipped,
		state: make(map[N]state, len(nodes)), errs: map[N]error{},
		missing: make(map[N]int, len(nodes)), neededBy: make(map[N][]N, len(nodes)),
		ended: make(chan ending[N]),
	}
	for _, n := range nodes {
		w.state[n] = waiting
	}
	for _, n := range nodes {
		for _, need := range needs(n) {
			if _, member := w.state[need]; member {
				w.missing[n]++
				w.neededBy[need] = append(w.neededBy[need], n)
			}
		}
	}
	for _, n := range nodes {
		w.startReady(ctx, n)
	}
	for w.running > 0 {
		w.end(ctx, <-w.ended)
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
	nodes    []N
	do       func(context.Context, N) error
	skipped  func(Skipped[N])
	state    map[N]state
	errs     map[N]error
	missing  map[N]int // needs that have not succeeded
	neededBy map[N][]N
	running  int
	ended    chan ending[N]
}

// startReady starts a node if it lacks nothing.
func (w *walk[N]) startReady(ctx context.Context, n N) {
	if w.state[n] != waiting || w.missing[n] > 0 || ctx.Err() != nil {
		return
	}
	w.state[n] = running
	w.running++
	go func() { w.ended <- ending[N]{n, w.do(ctx, n)} }()
}

// end looks at nothing but what needs the node: a walk over all nodes here would make Walk quadratic.
func (w *walk[N]) end(ctx context.Context, e ending[N]) {
	w.running--
	if e.err != nil {
		w.state[e.node], w.errs[e.node] = failed, e.err
		w.skip(e.node)
		return
	}
	w.state[e.node] = succeeded
	for _, n := range w.neededBy[e.node] {
		w.missing[n]--
		w.startReady(ctx, n)
	}
}

// skip passes over every node that needs cause, also through others, in the order of nodes.
func (w *walk[N]) skip(cause N) {
	blocked := map[N]bool{}
	for next := []N{cause}; len(next) > 0; next = next[1:] {
		for _, n := range w.neededBy[next[0]] {
			if w.state[n] == waiting {
				w.state[n], blocked[n] = passed, true
				next = append(next, n)
			}
		}
	}
	for _, n := range w.nodes {
		if blocked[n] && w.skipped != nil {
			w.skipped(Skipped[N]{Node: n, Cause: cause})
		}
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
