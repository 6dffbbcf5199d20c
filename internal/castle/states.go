package castle

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/state"
)

// StageState is what castle keeps of one stage: its Terraform state and the
// snapshots of it. No value of a resource or output is in it.
type StageState struct {
	Name      string          `json:"name"`
	Layer     string          `json:"layer"`
	Serial    uint64          `json:"serial"`
	Lineage   string          `json:"lineage"`
	Resources []StateResource `json:"resources"`
	Applied   time.Time       `json:"applied,omitzero"` // when a run last began to apply it
	Snapshots []StateSnapshot `json:"snapshots"`        // the newest first
	// Problem says why the state cannot be used as it is, and what can be done.
	Problem string `json:"problem,omitempty"`
}

// StateResource is one object that a state knows.
type StateResource struct {
	Address  string `json:"address"`
	Mode     string `json:"mode"` // managed or data
	Provider string `json:"provider"`
	Tainted  bool   `json:"tainted,omitempty"`
	Deposed  bool   `json:"deposed,omitempty"`
}

// StateSnapshot is one copy of an earlier state.
type StateSnapshot struct {
	Name      string    `json:"name"`
	Serial    uint64    `json:"serial"`
	Taken     time.Time `json:"taken"`
	Resources int       `json:"resources"`
	Problem   string    `json:"problem,omitempty"` // why it cannot be restored
}

// States returns the states of the stages that are recorded, or of the one or the
// layer that is named, by layer and inside a layer by name. Nothing is repaired.
func (c *Castle) States(name string) ([]StageState, error) {
	places, err := c.remembered(name)
	if err != nil {
		return nil, err
	}
	all := []StageState{}
	for _, p := range places {
		one, err := c.stateOf(p)
		if err != nil {
			return nil, c.conceal(err)
		}
		all = append(all, one)
	}
	return all, nil
}

// remembered returns the stages of the state directory that name selects; all
// of them if it is empty.
func (c *Castle) remembered(name string) ([]place, error) {
	names, err := c.dir.Stages()
	if err != nil {
		return nil, err
	}
	var all []place
	for _, n := range names {
		layer, err := c.layerOf(n)
		if err != nil {
			return nil, err
		}
		all = append(all, place{n, layer})
	}
	rank := func(p place) int { return slices.Index(config.Layers(), p.layer) }
	slices.SortStableFunc(all, func(a, b place) int { return rank(a) - rank(b) })
	if name == "" {
		return all, nil
	}
	if len(all) == 0 {
		return nil, &UsageError{Message: fmt.Sprintf("%s has no state of any stage", c.Name())}
	}
	found := matches(all, name)
	if len(found) == 0 {
		return nil, unknownStage("state", name, all)
	}
	var chosen []place
	for _, i := range found {
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// oneRemembered is the one stage that name means.
func (c *Castle) oneRemembered(name string) (place, error) {
	found, err := c.remembered(name)
	if err != nil {
		return place{}, err
	}
	if len(found) > 1 {
		var names []string
		for _, p := range found {
			names = append(names, p.name)
		}
		return place{}, &UsageError{Message: fmt.Sprintf("layer %s has several stages; name one: %s", name, strings.Join(names, ", "))}
	}
	return found[0], nil
}

// layerOf is a stage's layer as it was recorded; where a killed run has left no
// record, as it is configured.
func (c *Castle) layerOf(stage string) (string, error) {
	rec, err := c.dir.Stage(stage).Record()
	if !errors.Is(err, fs.ErrNotExist) {
		return rec.Layer, err
	}
	for _, s := range c.cluster.Stages {
		if s.Name == stage {
			return s.Layer, nil
		}
	}
	return "", nil
}

func (c *Castle) stateOf(p place) (StageState, error) {
	dir := c.dir.Stage(p.name)
	one := StageState{Name: p.name, Layer: p.layer, Resources: []StateResource{}, Snapshots: []StateSnapshot{}}
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
		c.hideState(copied.State)
		one.Snapshots = append(one.Snapshots, c.snapshotOf(copied))
	}
	st, err := dir.State()
	switch {
	case errors.As(err, new(*state.UnreadableError)):
		one.Problem = c.masker.Hide(err.Error())
	case err != nil:
		return one, err
	default:
		c.hideState(st)
		one.Serial, one.Lineage = st.Serial, st.Lineage
		for _, res := range st.Resources {
			one.Resources = append(one.Resources, StateResource{
				Address: c.masker.Hide(res.Address), Mode: res.Mode, Provider: res.Provider, Tainted: res.Tainted, Deposed: res.Deposed,
			})
		}
	}
	rescued, err := dir.Copies().Errored()
	if err != nil || rescued == nil {
		return one, err
	}
	if err := dir.CheckState(); err != nil {
		one.Problem = strings.TrimPrefix(one.Problem+"\n"+c.masker.Hide(err.Error()), "\n")
	}
	return one, nil
}

func (c *Castle) snapshotOf(copied *state.Copy) StateSnapshot {
	one := StateSnapshot{Name: copied.Name, Taken: copied.Taken}
	if copied.State == nil {
		one.Problem = c.masker.Hide(copied.Reason.Error())
		return one
	}
	one.Serial, one.Resources = copied.State.Serial, len(copied.State.Resources)
	return one
}

// hideState masks from now on what a state's sensitive outputs say.
func (c *Castle) hideState(st *state.State) {
	if st == nil {
		return
	}
	for _, out := range st.Outputs {
		if out.Sensitive {
			c.masker.Add(stringsIn(out.Value)...)
		}
	}
}
