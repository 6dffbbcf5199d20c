// Package graph orders nodes by what they need and walks them side by side. It
// knows nothing of stages: a node is any comparable value.
//
// Sort proves that there is an order before anything runs; Walk then starts each node at the moment the last
// thing it needs has succeeded. A failure skips exactly the nodes that need the failed one, directly or
// through others; everything else runs to its end. Destroying is the same Walk over Reverse.
package graph

import (
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

// Reverse returns the needs of the opposite direction: the first nodes come last. Needs outside nodes are
// dropped.
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
// with the earliest nodes wins. Needs outside nodes are ignored. The error is a *CycleError.
//
// The algorithm finds the longest path through a directed acyclic graph, in one pass in topological order
// (Sedgewick and Wayne, Algorithms, 4th edition, 4.4, "critical path method"; Kelley and Walker, 1959).
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
