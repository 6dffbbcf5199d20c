// Package repair works on single states by hand: list them, restore a snapshot,
// untrack a resource, run any Terraform command. Each holds the cluster's lock while
// it changes something, and snapshots the state before.
package repair

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state"
)

// StageState describes a stage's Terraform state and its snapshots, without values of resources or outputs.
type StageState struct {
	Name      string           `json:"name"`
	Layer     string           `json:"layer"`
	Serial    uint64           `json:"serial"`
	Lineage   string           `json:"lineage"`
	Resources []state.Resource `json:"resources"`
	Applied   time.Time        `json:"applied,omitzero"` // when a run last began to apply it
	Snapshots []StateSnapshot  `json:"snapshots"`        // the newest first
	// Problem explains why the state is unusable, and how to repair it.
	Problem string `json:"problem,omitempty"`
}

// StateSnapshot is one copy of an earlier state.
type StateSnapshot struct {
	Name      string    `json:"name"`
	Serial    uint64    `json:"serial"`
	Taken     time.Time `json:"taken"`
	Resources int       `json:"resources"`
	Problem   string    `json:"problem,omitempty"` // why it cannot be restored
}

// States returns the states of the recorded stages, or of a named stage or layer, and repairs nothing.
func States(c *cluster.Cluster, name string) ([]StageState, error) {
	places, err := c.RecordedStages(name)
	if err != nil {
		return nil, err
	}
	all := []StageState{}
	for _, p := range places {
		one, err := stateOf(c, p)
		if err != nil {
			return nil, c.MaskError(err)
		}
		all = append(all, one)
	}
	return all, nil
}

func stateOf(c *cluster.Cluster, p cluster.StageRef) (StageState, error) {
	dir := c.Dir.Stage(p.Name)
	one := StageState{
		Name: p.Name, Layer: p.Layer, Resources: []state.Resource{}, Snapshots: []StateSnapshot{},
	}
	rec, err := dir.Record()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return one, err
	}
	one.Applied = rec.Applied
	copies, err := dir.Copies().Snapshots()
	if err != nil {
		return one, err
	}
	for _, copied := range copies {
		snapshot := StateSnapshot{Name: copied.Name, Taken: copied.Taken}
		if copied.State == nil {
			snapshot.Problem = c.Masker.Hide(copied.Reason.Error())
		} else {
			c.MaskOutputs(copied.State)
			snapshot.Serial, snapshot.Resources = copied.State.Serial, len(copied.State.Resources)
		}
		one.Snapshots = append(one.Snapshots, snapshot)
	}
	st, err := dir.State()
	switch {
	case errors.As(err, new(*state.UnreadableError)):
		one.Problem = c.Masker.Hide(err.Error())
	case err != nil:
		return one, err
	default:
		c.MaskOutputs(st)
		one.Serial, one.Lineage = st.Serial, st.Lineage
		for _, res := range st.Resources {
			res.Address = c.Masker.Hide(res.Address)
			one.Resources = append(one.Resources, res)
		}
	}
	rescued, err := dir.Copies().Errored()
	if err != nil || rescued == nil {
		return one, err
	}
	if err := dir.CheckState(); err != nil {
		one.Problem = strings.TrimPrefix(one.Problem+"\n"+c.Masker.Hide(err.Error()), "\n")
	}
	return one, nil
}
