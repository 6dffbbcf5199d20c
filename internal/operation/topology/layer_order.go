package topology

import (
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/graph"
)

// parallelLayers are the layers that the script runs in parallel once all others are ready.
func parallelLayers() []string { return []string{"networking", "storage", "gitops"} }

// layerByLayer returns the duration of a run in which a script runs the nodes by layer, as TazLab's
// create.sh did. Layers follow each other, except that networking, storage and gitops run in parallel. The
// stages of a layer follow each other, each with all of its gates.
//
// It is the critical path of a graph in which each node also needs its predecessor in the script. So it
// is never shorter than that of the stages themselves.
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
		if !slices.Contains(parallelLayers(), layer) {
			done = last
		}
	}
	needs := func(n measured) []measured { return append(n.needs(), before[n]) }
	_, length, err := graph.CriticalPath(nodes, needs, weight)
	return length, err
}
