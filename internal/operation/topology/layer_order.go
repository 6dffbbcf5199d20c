package topology

import (
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/graph"
)

// sideBySide are the layers that a script raises at once, when those before are ready.
func sideBySide() []string { return []string{"networking", "storage", "gitops"} }

// layerByLayer returns what the nodes of a run take if each weighs the same and a
// script runs them that knows layers only: one layer after the other and the last
// three side by side, in each layer one stage after the other, in an order in which
// each comes after what it needs, and with all of its gates open before the next.
// Of the three, too, none begins a stage before what that needs is ready.
//
// This is the order of the script that castle takes the place of, TazLab's create.sh:
// secrets, vault-jwt-config, vault-db-config, platform, engine, and then networking,
// gitops and storage in parallel, with Flux's convergence at the end.
//
// It is the critical path of a graph in which each node also needs what the script
// has before it: never less than that of what the stages need themselves.
func layerByLayer(nodes []measured, weight func(measured) time.Duration) (time.Duration, error) {
	order, err := graph.Sort(nodes, measured.needs)
	if err != nil {
		return 0, err
	}
	before := map[measured]measured{} // the first one's is no node, which is none
	var done measured
	for _, layer := range config.Layers() {
		last := done
		for _, n := range order {
			if n.stage.Layer == layer {
				before[n], last = last, n
			}
		}
		if !slices.Contains(sideBySide(), layer) {
			done = last
		}
	}
	needs := func(n measured) []measured { return append(n.needs(), before[n]) }
	_, length, err := graph.CriticalPath(nodes, needs, weight)
	return length, err
}
