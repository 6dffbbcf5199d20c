package main

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A measure is what one command cost.
type measure struct {
	Wall     time.Duration `json:"wall"`
	Own      time.Duration `json:"own_cpu"`      // the CPU time of the command's first process
	Kernel   time.Duration `json:"kernel_cpu"`   // the part of Own that the kernel spent for it
	Children time.Duration `json:"children_cpu"` // of all that it started and waited for
	Memory   int64         `json:"memory"`       // the peak of the first process, in bytes
}

// A key names a measured command: which roots, what was done to them, and by which tool.
type key struct{ Roots, Phase, Tool string }

func (k key) String() string { return k.Roots + " " + k.Phase + " " + k.Tool }

// samples holds the measures of each command, one for each round.
type samples map[key][]measure

// median is the middle value, or the mean of the two middle ones; 0 of nothing.
func median[N time.Duration | int64 | float64](values []N) N {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// of returns the median of each figure by itself.
func (s samples) of(k key) measure {
	var wall, own, kernel, children []time.Duration
	var memory []int64
	for _, m := range s[k] {
		wall, own = append(wall, m.Wall), append(own, m.Own)
		kernel, children = append(kernel, m.Kernel), append(children, m.Children)
		memory = append(memory, m.Memory)
	}
	return measure{median(wall), median(own), median(kernel), median(children), median(memory)}
}

// A ratio compares the wall clock of castle with that of a peer in the same run. Less is better.
type ratio struct {
	Roots, Phase, Peer string
	Value              float64
}

func (r ratio) name() string { return fmt.Sprintf("%s %s castle/%s", r.Roots, r.Phase, r.Peer) }

// ratios returns castle's ratio to each peer, as far as both were measured.
func (s samples) ratios() (all []ratio) {
	for _, k := range slices.SortedFunc(maps.Keys(s), compareKeys) {
		own := s.of(key{k.Roots, k.Phase, castleTool}).Wall
		if peer := s.of(k).Wall; k.Tool != castleTool && own > 0 && peer > 0 {
			all = append(all, ratio{k.Roots, k.Phase, k.Tool, float64(own) / float64(peer)})
		}
	}
	return all
}

func compareKeys(a, b key) int {
	return slices.Compare([]string{a.Roots, a.Phase, a.Tool}, []string{b.Roots, b.Phase, b.Tool})
}

// A ratio is worse than the recorded one if it is more than a fifth above it. The margin is for commands of
// some milliseconds, whose ratio is almost nothing: a fifth of that is not measurable.
const (
	worseBy = 0.2
	margin  = 0.005
)

// compare returns a line for each ratio that is worse than the recorded one. A recorded ratio that was not
// measured now is no regression, but a comparison of nothing is an error.
func compare(recorded map[string]float64, now []ratio) (worse []string, err error) {
	compared := 0
	for _, r := range now {
		before, ok := recorded[r.name()]
		if !ok {
			continue
		}
		compared++
		if r.Value > before*(1+worseBy)+margin {
			worse = append(worse, fmt.Sprintf("%s: %.3f, recorded %.3f", r.name(), r.Value, before))
		}
	}
	if compared == 0 {
		return nil, fmt.Errorf("none of the %d measured ratios is recorded", len(now))
	}
	return worse, nil
}
