package destroy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Doomed is one stage that a destroy would raze.
type Stage struct {
	Record    state.Record
	Resources []string // addresses of what Terraform owns
	// Collapses says that what this stage has in the cluster ends with the
	// cluster and is not deleted by itself.
	EndsWithCluster bool

	state    *state.State
	inFlight []state.Intended // what a run that was cut short was making
	ended    bool             // the cluster ends with this destroy
	begun    bool             // it was told that the stage has started

	attempted bool         // Terraform was told to destroy something
	denied    *deniedError // why Proxmox will not hear of it
}

// Doomed returns what a destroy with these options would raze, by layer and
// inside a layer by name. It reads what the state directory recorded, whatever the
// configuration says by now.
func Select(c *cluster.Cluster, o Options) ([]*Stage, error) {
	all, err := RecordedStages(c)
	if err != nil {
		return nil, err
	}
	places := make([]cluster.StageRef, len(all))
	for i, d := range all {
		places[i] = cluster.StageRef{Name: d.Record.Name, Layer: d.Record.Layer}
	}
	chosen, err := o.Selection.Filter(places)
	if err != nil {
		return nil, err
	}
	stays := survivingSecrets(all)
	var doomed, staying []*Stage
	for i, d := range all {
		switch {
		case chosen[i] && (o.All || !d.Record.Persistent) && !(o.KeepSecrets && stays[d.Record.Name]):
			doomed = append(doomed, d)
		case !d.Record.Persistent: // what is persistent outlives what it needs
			staying = append(staying, d)
		}
	}
	if err := o.checkDependents(doomed, staying); err != nil {
		return nil, err
	}
	ends := slices.ContainsFunc(doomed, func(d *Stage) bool { return d.Record.EndsCluster })
	for _, d := range doomed {
		d.ended = ends && !o.Graceful
		lost := slices.ContainsFunc(d.inFlight, func(c state.Intended) bool { return recovery.IsInCluster(c.Type, d.Record.InCluster) })
		d.EndsWithCluster = d.ended && (lost || len(d.inCluster()) > 0)
	}
	return doomed, nil
}

// undermined refuses to take away what a stage that is not selected stands on:
// what it has in a cluster that is gone could never be deleted, and without the
// keys that it was made with, a cluster can never be reached again.
func (o Options) checkDependents(doomed, staying []*Stage) error {
	below := map[string]bool{}
	var names []string
	for _, d := range doomed {
		names = append(names, d.Record.Name)
		below[d.Record.Name] = len(d.Resources) > 0
	}
	var standing []string
	for grown := true; grown; {
		grown = false
		for _, d := range staying {
			on := func(need string) bool { return below[need] }
			if !below[d.Record.Name] && slices.ContainsFunc(d.Record.Needs, on) {
				below[d.Record.Name], grown = true, true
				standing = append(standing, d.Record.Name)
			}
		}
	}
	if len(standing) == 0 {
		return nil
	}
	return &cluster.UsageError{Message: fmt.Sprintf("%s would take away what others stand on: %s; destroy them with it: --only %s",
		o.Selection, strings.Join(standing, ", "), strings.Join(append(names, standing...), ","))}
}

// recorded reads every recorded stage, by layer and inside a layer by name.
func RecordedStages(c *cluster.Cluster) ([]*Stage, error) {
	names, err := c.Dir.Stages()
	if err != nil {
		return nil, err
	}
	var all []*Stage
	for _, name := range names {
		dir := c.Dir.Stage(name)
		rec, err := dir.Record()
		if err != nil {
			return nil, err
		}
		st, err := dir.LastKnown()
		if err != nil {
			return nil, err
		}
		for _, out := range st.Outputs {
			if out.Sensitive {
				c.Masker.Add(cluster.StringsIn(out.Value)...)
			}
		}
		lost, err := recovery.InFlight(dir, st)
		if err != nil {
			return nil, err
		}
		d := &Stage{Record: rec, state: st, inFlight: lost}
		d.Resources = d.managed()
		all = append(all, d)
	}
	layer := func(d *Stage) int { return slices.Index(config.Layers(), d.Record.Layer) }
	slices.SortStableFunc(all, func(a, b *Stage) int { return layer(a) - layer(b) })
	return all, nil
}

// managed are the addresses of what Terraform owns.
func (d *Stage) managed() []string {
	var addresses []string
	for _, res := range d.state.Resources {
		if res.Mode == cluster.ManagedMode {
			addresses = append(addresses, res.Address)
		}
	}
	return addresses
}

// inCluster are the resources that the generated providers own.
func (d *Stage) inCluster() []string { return d.owned(true) }

// external are all others: they would survive the cluster.
func (d *Stage) external() []string { return d.owned(false) }

func (d *Stage) owned(inCluster bool) []string {
	var addresses []string
	for _, res := range d.state.Resources {
		if res.Mode == cluster.ManagedMode && slices.Contains(d.Record.InCluster, res.Provider) == inCluster {
			addresses = append(addresses, res.Address)
		}
	}
	return addresses
}

// String names the stage in messages about the walk.
func (d *Stage) String() string { return d.Record.Name }

// targets are the addresses of what is to be destroyed by Terraform.
func (d *Stage) targets() []string {
	if d.EndsWithCluster {
		return d.external()
	}
	return d.Resources
}

// lost is what is in flight and does not end with the cluster.
func (d *Stage) lost() []state.Intended {
	return slices.DeleteFunc(slices.Clone(d.inFlight), func(c state.Intended) bool {
		return d.ended && recovery.IsInCluster(c.Type, d.Record.InCluster)
	})
}

// outliving are the recorded stages of the secrets layer that can stay while the
// cluster goes: neither they nor what they need live in the cluster.
func survivingSecrets(all []*Stage) map[string]bool {
	stays, recorded := map[string]bool{}, map[string]bool{}
	for _, d := range all {
		recorded[d.Record.Name] = true
		stays[d.Record.Name] = d.Record.Layer == cluster.SecretsLayer && len(d.Record.InCluster) == 0 && !d.Record.EndsCluster
	}
	goes := func(need string) bool { return recorded[need] && !stays[need] }
	for changed := true; changed; {
		changed = false
		for _, d := range all {
			if stays[d.Record.Name] && slices.ContainsFunc(d.Record.Needs, goes) {
				stays[d.Record.Name], changed = false, true
			}
		}
	}
	return stays
}
