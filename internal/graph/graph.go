// Package graph orders nodes by what they need and walks them side by side. It knows nothing of stages: a
// node is any comparable value. Sort proves that there is an order before anything runs; Walk then starts
// each node at the moment the last thing it needs has succeeded. A failure skips exactly the nodes that need
// the failed one, directly or through others; everything else runs. Destroying is a Walk over Reverse.
package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CycleError is a chain of nodes in which each needs the next and the last
// needs the first. Path names the first node at both ends.
type CycleError[N comparable] struct{ Path []N }

func (e *CycleError[N]) Error() string {
	names := make([]string, len(e.Path))
	for i, n := range e.Path {
		names[i] = fmt.Sprint(n)
	}
	return "cycle: " + strings.Join(names, " needs ")
}

// Sort returns nodes in an order in which each comes after all that it needs, and otherwise as they were
// given. Needs outside nodes are ignored. The error is a *CycleError.
func Sort[N comparable](nodes []N, needs func(N) []N) ([]N, error) {
	var order []N
	pending := map[N]bool{} // the nodes that are not in order yet
	for _, n := range nodes {
		pending[n] = true
	}
	var visit func(n N, path []N) error
	visit = func(n N, path []N) error {
		if !pending[n] {
			return nil
		}
		if at := slices.Index(path, n); at >= 0 {
			return &CycleError[N]{Path: append(slices.Clone(path[at:]), n)}
		}
		path = append(path, n)
		for _, need := range needs(n) {
			if err := visit(need, path); err != nil {
				return err
			}
		}
		delete(pending, n)
		order = append(order, n)
		return nil
	}
	for _, n := range nodes {
		if err := visit(n, nil); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// Reverse returns the needs of the opposite direction, without those outside nodes: the first come last.
func Reverse[N comparable](nodes []N, needs func(N) []N) func(N) []N {
	member := make(map[N]bool, len(nodes))
	for _, n := range nodes {
		member[n] = true
	}
	reversed := make(map[N][]N, len(nodes))
	for _, n := range nodes {
		for _, need := range needs(n) {
			// A need that is named twice comes twice in a row.
			if all := reversed[need]; member[need] && (len(all) == 0 || all[len(all)-1] != n) {
				reversed[need] = append(all, n)
			}
		}
	}
	return func(n N) []N { return reversed[n] }
}

// Closure returns the members of nodes that start needs, through any number of
// steps, start itself included, in the order of nodes.
func Closure[N comparable](nodes []N, needs func(N) []N, start ...N) []N {
	seen := map[N]bool{}
	var visit func(N)
	visit = func(n N) {
		if seen[n] {
			return
		}
		seen[n] = true
		for _, need := range needs(n) {
			visit(need)
		}
	}
	for _, n := range start {
		visit(n)
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n N) bool { return !seen[n] })
}

// CriticalPath returns the chain of nodes with the greatest total weight, each needing the one before, and
// that total. The total is the minimum duration of a walk with unlimited parallelism: only a faster node on
// the path shortens the walk. The path does not begin with a node without weight. Of equal paths, the one
// with the earliest nodes wins. Needs outside nodes are ignored. The error is a *CycleError. The algorithm
// finds the longest path through a directed acyclic graph, in one pass in topological order (Sedgewick and
// Wayne, Algorithms, 4th edition, 4.4, "critical path method"; Kelley and Walker, 1959).
func CriticalPath[N comparable](nodes []N, needs func(N) []N,
	weight func(N) time.Duration) ([]N, time.Duration, error) {
	order, err := Sort(nodes, needs)
	if err != nil {
		return nil, 0, err
	}
	until := map[N]time.Duration{} // what the heaviest path to the node weighs, the node included
	before := map[N]N{}            // the node that comes before it on that path
	var end N
	var most time.Duration
	for _, n := range order {
		var longest time.Duration
		for _, need := range needs(n) { // of what is outside nodes, until is zero
			if until[need] > longest {
				longest, before[n] = until[need], need
			}
		}
		until[n] = longest + weight(n)
		if until[n] > most {
			most, end = until[n], n
		}
	}
	if most == 0 {
		return nil, 0, nil
	}
	path := []N{end}
	for n, ok := before[end]; ok; n, ok = before[n] {
		path = append([]N{n}, path...)
	}
	return path, most, nil
}

// Skipped is a node that was not started because something it needs did not
// succeed. Cause is the node that failed first on the way.
type Skipped[N comparable] struct {
	Node, Cause N
}

// Walk runs do for every node, as soon as do has returned nil for all nodes that it needs. Nodes run in
// parallel without a limit; do may limit itself. Walk returns when no node is running any more. The error
// joins the failures of do in the order of nodes: root causes only, never skipped nodes. skipped, if not nil,
// receives each node that was not started. When ctx ends, nothing new starts, and the error holds the
// context's cause even if no node failed.
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
	return errors.Join(append(errs, context.Cause(ctx))...)
}
