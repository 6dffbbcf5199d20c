package graph

import "time"

// CriticalPath returns the chain of nodes, each needing the one before, whose
// weights sum up to the most, and that sum: what a walk takes at least, however
// much runs side by side, so that only a node on it is worth making faster.
// What weighs nothing does not begin the path. Of equal paths it is the one whose
// nodes come first. Needs outside nodes are ignored. The error is a *CycleError.
//
// It is the longest path through a directed acyclic graph, found in one pass over
// an order of its nodes (Sedgewick and Wayne, Algorithms, 4th edition, section 4.4,
// "critical path method"; the method is Kelley and Walker's of 1959).
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
