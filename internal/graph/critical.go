package graph

import "time"

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
