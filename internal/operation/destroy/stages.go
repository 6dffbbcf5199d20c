package destroy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Stage is one recorded stage, as a destroy sees it.
type Stage struct {
	Record    state.Record
	Resources []string // addresses of what Terraform owns
	// EndsWithCluster reports that the stage's objects end with the cluster and are not deleted one by one.
	EndsWithCluster bool

	dir      *state.Stage
	state    *state.State
	inFlight []state.Intended // what an interrupted run was making
	ended    bool             // the cluster ends with this destroy
	denied   error            // the datacenter accepts no known token
}

// Select returns the stages that a destroy with these options destroys, by layer and inside a layer by name.
// It reads the records in the state directory, never the current configuration.
func Select(c *cluster.Cluster, o Options) ([]*Stage, error) {
	all, err := RecordedStages(c)
	if err != nil {
		return nil, err
	}
	places := make([]cluster.StageRef, len(all))
	for i, s := range all {
		places[i] = cluster.StageRef{Name: s.Record.Name, Layer: s.Record.Layer}
	}
	chosen, err := o.Selection.Filter(places)
	if err != nil {
		return nil, err
	}
	stays := survivingSecrets(all)
	var selected, staying []*Stage
	for i, s := range all {
		switch {
		case chosen[i] && (o.All || !s.Record.Persistent) && !(o.KeepSecrets && stays[s.Record.Name]):
			selected = append(selected, s)
		case !s.Record.Persistent: // what is persistent outlives what it needs
			staying = append(staying, s)
		}
	}
	if err := o.checkDependents(selected, staying); err != nil {
		return nil, err
	}
	ends := slices.ContainsFunc(selected, func(s *Stage) bool { return s.Record.EndsCluster })
	for _, s := range selected {
		s.ended = ends && !o.Graceful
		s.EndsWithCluster = s.ended && (len(s.lost()) < len(s.inFlight) ||
			slices.ContainsFunc(s.state.Managed(), s.endsByItself))
	}
	return selected, nil
}

// checkDependents refuses to destroy a stage if one that is not selected needs it. Objects in a cluster that
// is gone could never be deleted, and a cluster without its keys never reached.
func (o Options) checkDependents(selected, staying []*Stage) error {
	var names, standing []string
	nodes := slices.Clone(staying)
	for _, s := range selected {
		names = append(names, s.Record.Name)
		if len(s.Resources) > 0 {
			nodes = append(nodes, s)
		}
	}
	isSelected := func(s *Stage) bool { return slices.Contains(selected, s) }
	needs := needsAmong(nodes)
	for _, s := range staying {
		if slices.ContainsFunc(graph.Closure(nodes, needs, s), isSelected) {
			standing = append(standing, s.Record.Name)
		}
	}
	if len(standing) == 0 {
		return nil
	}
	return &cluster.UsageError{
		Message: fmt.Sprintf("%s would destroy what other stages need: %s; destroy them with it: --only %s",
			o.Selection, strings.Join(standing, ", "), strings.Join(append(names, standing...), ",")),
	}
}

// RecordedStages reads every recorded stage, by layer and inside a layer by name.
func RecordedStages(c *cluster.Cluster) ([]*Stage, error) {
	names, err := c.Dir.Stages()
	if err != nil {
		return nil, err
	}
	var all []*Stage
	for _, name := range names {
		s := &Stage{dir: c.Dir.Stage(name)}
		st, err := s.dir.LastKnown()
		if err != nil {
			return nil, err
		}
		s.Record, _, err = applied.ReadRecord(c, name)
		if errors.Is(err, fs.ErrNotExist) { // it was never applied
			continue
		}
		if err != nil {
			return nil, err
		}
		c.MaskOutputs(st)
		if err := s.setState(st); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	layer := func(s *Stage) int { return slices.Index(config.Layers(), s.Record.Layer) }
	slices.SortStableFunc(all, func(a, b *Stage) int { return layer(a) - layer(b) })
	return all, nil
}

// Machines describes the machines that the stage owns: name, id, node and disks.
func (s *Stage) Machines(hide func(string) string) (all []string) {
	for _, res := range s.state.Managed() {
		if machine := cluster.MachineOf(res.Type, res.Attributes); machine != "" {
			name, _ := terraform.KeyOf(res.Address)
			all = append(all, hide(cmp.Or(name, res.Address)+": "+machine))
		}
	}
	return all
}

func (s *Stage) setState(st *state.State) (err error) {
	s.state, s.Resources = st, nil
	for _, res := range st.Managed() {
		s.Resources = append(s.Resources, res.Address)
	}
	s.inFlight, err = recovery.InFlight(s.dir, st)
	return err
}

// String names the stage in messages about the walk.
func (s *Stage) String() string { return s.Record.Name }

// inCluster reports whether one of the generated providers owns the resource.
func (s *Stage) inCluster(res state.Resource) bool {
	return slices.Contains(s.Record.InCluster, res.Provider)
}

// ends reports whether the resource ends with the cluster: it is inside of it, or in its machines, unless the
// stage itself resets or deletes those.
func (s *Stage) ends(res state.Resource) bool {
	return s.inCluster(res) || s.Record.Layer == cluster.PlatformLayer && !s.Record.EndsCluster &&
		cluster.InMachines(res.Provider)
}

// endsByItself is ends without schematics of the image factory, which stand in the state alone: a stage that
// has nothing else of the kind, such as one for images, is destroyed as usual.
func (s *Stage) endsByItself(res state.Resource) bool {
	return s.ends(res) && res.Type != cluster.Schematic
}

func (s *Stage) hasInCluster() bool { return slices.ContainsFunc(s.state.Managed(), s.inCluster) }

// targets returns the addresses that Terraform is to destroy. If the stage ends with the cluster, those are
// the ones that would survive it.
func (s *Stage) targets() []string {
	if !s.EndsWithCluster {
		return s.Resources
	}
	var external []string
	for _, res := range s.state.Managed() {
		if !s.ends(res) {
			external = append(external, res.Address)
		}
	}
	return external
}

// lost returns the changes in flight whose objects do not end with the cluster.
func (s *Stage) lost() []state.Intended {
	return slices.DeleteFunc(slices.Clone(s.inFlight), func(c state.Intended) bool {
		return s.ended && recovery.IsInCluster(c.Type, s.Record.InCluster)
	})
}

// needsAmong returns a function that returns the stages among these that a stage needs.
func needsAmong(stages []*Stage) func(*Stage) []*Stage {
	at := make(map[string]int, len(stages))
	for i, s := range stages {
		at[s.Record.Name] = i
	}
	return func(s *Stage) (needs []*Stage) {
		for _, name := range s.Record.Needs {
			if i, among := at[name]; among {
				needs = append(needs, stages[i])
			}
		}
		return needs
	}
}

// survivingSecrets returns the stages of the secrets layer that can stay when the cluster goes: neither they
// nor their needs live in the cluster.
func survivingSecrets(all []*Stage) map[string]bool {
	goes := func(s *Stage) bool {
		return s.Record.Layer != cluster.SecretsLayer || len(s.Record.InCluster) > 0 || s.Record.EndsCluster
	}
	stays, needs := map[string]bool{}, needsAmong(all)
	for _, s := range all {
		stays[s.Record.Name] = !slices.ContainsFunc(graph.Closure(all, needs, s), goes)
	}
	return stays
}
