package main

import (
	"fmt"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/operation/topology"
)

// node is a stage until its early gates are open, or its late gates.
type node struct {
	stage string
	late  bool
}

// durations are the nodes of a graph, in its order, what each needs, and castle's time for each.
type durations struct {
	nodes []node
	layer map[node]string
	needs map[node][]node
	took  map[node]time.Duration
}

// durationsOf fails if the run did not measure every node.
func durationsOf(g *topology.Graph) (*durations, error) {
	d := &durations{layer: map[node]string{}, needs: map[node][]node{}, took: map[node]time.Duration{}}
	ready := map[string]node{} // the node that completes a stage
	add := func(n node, layer string, seconds *float64, needs ...node) error {
		if seconds == nil {
			return fmt.Errorf("%s: castle has not measured it", n.stage)
		}
		d.nodes, d.layer[n], d.needs[n], ready[n.stage] = append(d.nodes, n), layer, needs, n
		d.took[n] = time.Duration(*seconds * float64(time.Second))
		return nil
	}
	for _, s := range g.Stages {
		early, gates := node{s.Name, false}, false
		if err := add(early, s.Layer, s.Seconds); err != nil {
			return nil, err
		}
		for _, one := range s.Gates {
			gates = gates || one.Late
		}
		if gates {
			if err := add(node{s.Name, true}, s.Layer, s.GateSeconds, early); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range g.Edges {
		to := node{e.To, e.Late != ""}
		d.needs[to] = append(d.needs[to], ready[e.From])
	}
	return d, nil
}

// layerByLayer returns how long castle's own durations take in the order of create.sh, without the time
// between stages. Layers follow each other, except those side by side. The stages of a layer follow each
// other, each with all of its gates.
//
// It is the critical path of a graph in which each node also needs its predecessor in the script. So it is
// never shorter than that of the stages themselves.
func (d *durations) layerByLayer() (time.Duration, error) {
	order, err := graph.Sort(d.nodes, func(n node) []node { return d.needs[n] })
	if err != nil {
		return 0, err
	}
	before := map[node]node{} // the first one's is no node, which is none
	var done node
	for _, layer := range config.Layers() {
		last := done
		for _, n := range order {
			if d.layer[n] == layer {
				before[n], last = last, n
			}
		}
		if !isSideBySide(layer) {
			done = last
		}
	}
	return d.longest(func(n node) []node { return append([]node{before[n]}, d.needs[n]...) })
}

// longest returns the length of the critical path.
func (d *durations) longest(needs func(node) []node) (time.Duration, error) {
	_, length, err := graph.CriticalPath(d.nodes, needs, func(n node) time.Duration { return d.took[n] })
	return length, err
}
