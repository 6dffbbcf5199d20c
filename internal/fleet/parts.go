package fleet

import "slices"

// Part is what a pipeline runs as one job for several clusters: the canary of a wave, or the rest of it.
type Part struct {
	Name     string // staging, or staging-canary
	Wave     *Wave
	First    bool // of its wave
	Clusters []Cluster
}

// Parts cuts the waves into their parts, in order, those without a cluster included. chosen limits the
// clusters; the canary is among them.
func (f *Fleet) Parts(chosen func(cluster string) bool) (all []Part) {
	for _, w := range f.Waves {
		rest := slices.DeleteFunc(slices.Clone(w.Clusters), func(c Cluster) bool { return !chosen(c.Name) })
		if w.Canary > 0 {
			n := min(w.Canary, len(rest))
			all = append(all, Part{Name: w.Name + "-canary", Wave: w, First: true, Clusters: rest[:n]})
			rest = rest[n:]
		}
		all = append(all, Part{Name: w.Name, Wave: w, First: w.Canary == 0, Clusters: rest})
	}
	return all
}

// RunnerLabel is the label of a cluster that its runners have.
const RunnerLabel = "site"

// Runner is the label or tag of the runners that reach a cluster; otherwise if the cluster has none.
func (c Cluster) Runner(otherwise string) string {
	if site := c.Labels[RunnerLabel]; site != "" {
		return site
	}
	return otherwise
}
