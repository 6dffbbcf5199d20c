package applied

import (
	"maps"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// instancesOf is the document of the instances that a stage's last apply has configured, by address.
func instancesOf(dir *state.Stage) state.Document[map[string]string] {
	return state.StageDocument[map[string]string](dir, "instances")
}

// Outdated returns the addresses in a stage's state that have configured an earlier instance. The resource is
// unchanged, but what it had configured is gone.
func Outdated(r *run.Run, s *config.Stage, st *state.State) ([]string, error) {
	if len(s.Replaces) == 0 {
		return nil, nil
	}
	was, err := instancesOf(r.Cluster.Dir.Stage(s.Name)).Value()
	is := r.Instances(s)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(is)), func(address string) bool {
		return !st.Has(address) || is[address] == was[address]
	}), err
}

// RecordInstances records what an apply of a stage has configured.
func RecordInstances(r *run.Run, s *config.Stage) error {
	all := r.Instances(s)
	if len(all) == 0 { // or they are not known
		return nil
	}
	return instancesOf(r.Cluster.Dir.Stage(s.Name)).Write(all)
}
