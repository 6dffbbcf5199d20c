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

// Stage is one recorded stage, as a destroy sees it.
type Stage struct {
	Record    state.Record
	Resources []string // addresses of what Terraform owns
	// EndsWithCluster reports that the stage's objects in the cluster end with the cluster and are not
	// deleted one by one.
	EndsWithCluster bool

	state    *state.State
	inFlight []state.Intended // what an interrupted run was making
	ended    bool             // the cluster ends with this destroy
	begun    bool             // its start was reported

	attempted bool         // Terraform began to destroy something
	denied    *deniedError // Proxmox accepts no known token
}

// Select returns the stages that a destroy with these options destroys, by layer and inside a layer by name.
// It reads the records in the state directory, never the current configuration.
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
	var selected, staying []*Stage
	for i, d := range all {
		switch {
		case chosen[i] && (o.All || !d.Record.Persistent) && !(o.KeepSecrets && stays[d.Record.Name]):
			selected = append(selected, d)
		case !d.Record.Persistent: // what is persistent outlives what it needs
			staying = append(staying, d)
		}
	}
	if err := o.checkDependents(selected, staying); err != nil {
		return nil, err
	}
	ends := slices.ContainsFunc(selected, func(d *Stage) bool { return d.Record.EndsCluster })
	for _, d := range selected {
		d.ended = ends && !o.Graceful
		lost := slices.ContainsFunc(
			d.inFlight,
			func(c state.Intended) bool { return recovery.IsInCluster(c.Type, d.Record.InCluster) },
		)
		d.EndsWithCluster = d.ended && (lost || len(d.inCluster()) > 0)
	}
	return selected, nil
}

// checkDependents refuses to destroy a stage if one that is not selected needs it. Objects in a cluster that
// is gone could never be deleted, and a cluster without its keys never reached.
func (o Options) checkDependents(selected, staying []*Stage) error {
	below := map[string]bool{}
	var names []string
	for _, d := range selected {
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
	return &cluster.UsageError{
		Message: fmt.Sprintf("%s would take away what others stand on: %s; destroy them with it: --only %s",
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

// managed returns the addresses of the resources that Terraform manages.
func (d *Stage) managed() []string {
	var addresses []string
	for _, res := range d.state.Resources {
		if res.Mode == cluster.ManagedMode {
			addresses = append(addresses, res.Address)
		}
	}
	return addresses
}

// inCluster returns the resources that the generated providers own.
func (d *Stage) inCluster() []string { return d.owned(true) }

// external returns all others: they would survive the cluster.
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

// targets returns the addresses that Terraform is to destroy.
func (d *Stage) targets() []string {
	if d.EndsWithCluster {
		return d.external()
	}
	return d.Resources
}

// lost returns the changes in flight whose objects do not end with the cluster.
func (d *Stage) lost() []state.Intended {
	return slices.DeleteFunc(slices.Clone(d.inFlight), func(c state.Intended) bool {
		return d.ended && recovery.IsInCluster(c.Type, d.Record.InCluster)
	})
}

// survivingSecrets returns the stages of the secrets layer that can stay when the cluster goes: neither they
// nor their needs live in the cluster.
func survivingSecrets(all []*Stage) map[string]bool {
	stays, recorded := map[string]bool{}, map[string]bool{}
	for _, d := range all {
		recorded[d.Record.Name] = true
		stays[d.Record.Name] = d.Record.Layer == cluster.SecretsLayer && len(d.Record.InCluster) == 0 &&
			!d.Record.EndsCluster
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
