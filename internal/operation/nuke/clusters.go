package nuke

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
	"github.com/ephemeral-castle/castle/internal/store"
)

// recordedCluster holds the state directory's records of a cluster's machines.
type recordedCluster struct {
	name       string // blue/proxmox
	dir        *state.Dir
	working    *workingcopy.Copy // nil without a store
	platform   platform.Platform // that is cleared
	datacenter platform.Account
	stands     []string // the platforms of its machines
	endpoints  []string
	ids        []int
	machinesOf map[int]platform.Object // their recorded identities, by id
	unclear    string                  // why ids may not be all of them
	stages     []*recordedStage
}

// recordedStage is a stage of a cluster, by its record and its state.
type recordedStage struct {
	Record state.Record
	state  *state.State
	owner  bool // of machines
}

// State is a cluster whose machines have ids in the range.
type State struct {
	Cluster  string   `json:"cluster"`
	IDs      []int    `json:"vmids"`            // all its machines
	Stays    string   `json:"reason,omitempty"` // why its state stays
	Archived []string `json:"archived"`         // its archived stages
	// Outside lists their resources that are neither machines nor in the cluster:
	// those still exist, and only the archive records them.
	Outside []string `json:"outside,omitempty"`

	dir     *state.Dir
	working *workingcopy.Copy
	here    bool      // it lives in the datacenter that is cleared
	lock    *run.Lock // held while the nuke runs
	run     string
}

// recordedClusters reads all clusters of the store and below the state root. An unreadable one does not stop
// the others: its unclear field gives the reason. A store that does not answer stops all: somebody else may
// own what has an id in the range.
func (n *Nuke) recordedClusters(ctx context.Context) ([]*recordedCluster, error) {
	names, err := n.store.Clusters(ctx, n.root)
	if err != nil {
		return nil, err
	}
	var all []*recordedCluster
	for _, name := range names {
		cluster, kind, _ := strings.Cut(name, "/")
		c := &recordedCluster{name: name, platform: n.options.Platform, machinesOf: map[int]platform.Object{}}
		var elsewhere error
		c.dir, c.working, _, err = n.store.OpenDir(ctx, n.root, cluster, kind)
		if errors.As(err, new(*workingcopy.OtherError)) { // what it records may exist all the same
			elsewhere, err = err, nil
		}
		if errors.As(err, new(*store.Error)) || ctx.Err() != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
		if err == nil {
			err = c.read()
		}
		if err = errors.Join(elsewhere, err); err != nil {
			c.unclear = err.Error()
		}
		all = append(all, c)
	}
	return all, nil
}

// elsewhere returns a recorded endpoint of the cluster's machines that is not this one, or "".
func (c *recordedCluster) elsewhere(endpoint string) string {
	i := slices.IndexFunc(c.endpoints, func(e string) bool { return !c.platform.SameEndpoint(e, endpoint) })
	if i < 0 {
		return ""
	}
	return c.endpoints[i]
}

// standsOn reports whether a platform may have machines of the cluster.
func (c *recordedCluster) standsOn(p platform.Platform) bool {
	return len(c.stands) == 0 || slices.Contains(c.stands, p.Name())
}

// read collects a cluster's machines from the recorded preflights and the states, as either may lack one.
func (c *recordedCluster) read() error {
	names, err := c.dir.Stages()
	if err != nil {
		return err
	}
	var unclear []error
	for _, name := range names {
		d := &recordedStage{}
		if d.Record, err = c.dir.Stage(name).Record(); err != nil {
			d.Record = state.Record{Name: name}
			if !errors.Is(err, fs.ErrNotExist) {
				unclear = append(unclear, err)
			}
		}
		if d.state, err = c.dir.Stage(name).LastKnown(); err != nil {
			unclear = append(unclear, err)
			d.state = &state.State{}
		}
		if d.state.Notice != "" { // an older state may lack a machine
			unclear = append(unclear, fmt.Errorf("stage %s: %s", name, d.state.Notice))
		}
		c.stages = append(c.stages, d)
		unclear = append(unclear, c.machines(d), c.readMachines(d))
	}
	slices.Sort(c.ids)
	c.ids = slices.Compact(c.ids)
	return errors.Join(unclear...)
}

func (c *recordedCluster) machines(d *recordedStage) error {
	asked, err := cluster.Datacenters(d.Record)
	if err != nil {
		return err
	}
	for _, one := range asked {
		d.owner = d.owner || len(one.Ids) > 0
		c.datacenter = one.Account
		c.stands = append(c.stands, one.Platform.Name())
		c.endpoints = append(c.endpoints, one.Account.Endpoint)
		c.ids = append(c.ids, one.Ids...)
	}
	for _, res := range d.state.Managed() {
		id, isGuest := cluster.Platforms().MachineID(res.Type, res.Attributes)
		switch {
		case isGuest && id == 0:
			return fmt.Errorf("the id of %s is not known", res.Address)
		case isGuest:
			d.owner = true
			c.ids = append(c.ids, id)
		}
	}
	return nil
}

// readMachines reads the identities of a stage's machines.
func (c *recordedCluster) readMachines(d *recordedStage) error {
	ids, err := cluster.MachineIDs(c.dir.Stage(d.Record.Name)).Value()
	if err != nil {
		return err
	}
	for _, m := range ids { // also machines that the state has lost
		if id, err := strconv.Atoi(m.ID); err == nil {
			c.machinesOf[id] = platform.Object{Kind: platform.Machine, VM: id, UUID: m.UUID, Was: m.Replaces}
		}
	}
	for _, t := range cluster.Platforms().ObjectsOf(cluster.Known(d.state, ids...)) {
		if t.Kind == platform.Machine {
			c.machinesOf[t.VM] = t
		}
	}
	return nil
}

// ended returns the stages that end with the machines: those that own machines and, unless persistent, those
// that need one of these. Stages with machines come last, so that an interrupted nuke finds them again.
func (c *recordedCluster) ended() []*recordedStage {
	gone := map[string]bool{}
	for _, d := range c.stages {
		gone[d.Record.Name] = d.owner
	}
	for range c.stages { // each pass ends those that need one of the pass before
		for _, d := range c.stages {
			if slices.ContainsFunc(d.Record.Needs, func(need string) bool { return gone[need] }) {
				gone[d.Record.Name] = gone[d.Record.Name] || !d.Record.Persistent
			}
		}
	}
	var above, owners []*recordedStage
	for _, d := range c.stages {
		switch {
		case d.owner:
			owners = append(owners, d)
		case gone[d.Record.Name]:
			above = append(above, d)
		}
	}
	return append(above, owners...)
}

// archive archives stages and removes the cluster's kubeconfig and talosconfig, with their copies in a
// known repository. A stage with objects outside of the machines keeps its whole state.
func (c *recordedCluster) archive(stages []*recordedStage, id, repository string) error {
	for _, path := range []string{c.dir.Kubeconfig(), c.dir.Talosconfig()} {
		content, err := ownfile.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		export := filepath.Join(repository, "clusters", c.name, "configs", filepath.Base(path))
		copied, err := os.ReadFile(export)
		if repository != "" && err == nil && bytes.Equal(copied, content) {
			if err := os.Remove(export); err != nil {
				return err
			}
		}
		if err := c.dir.Remove(path); err != nil {
			return err
		}
	}
	for _, d := range stages {
		archive := state.Archive
		if len(cluster.Outside(d.Record, d.state)) > 0 {
			archive = state.ArchiveWhole
		}
		if err := archive(c.dir.Stage(d.Record.Name), id); err != nil {
			return err
		}
	}
	return errors.Join(c.dir.Recreation().Clear(), c.dir.Restoration().Clear(),
		state.ClusterDocument[struct{}](c.dir, "births").Clear())
}

// affectedStates returns the clusters with ids in the range, and why the state of one may have to stay.
func (n *Nuke) affectedStates(recorded []*recordedCluster) []State {
	states := []State{}
	for _, c := range recorded {
		switch {
		case n.concerns(c):
			states = append(states, n.stateOf(c))
		case c.unclear != "":
			n.Remarks = append(n.Remarks,
				fmt.Sprintf("whether %s has machines in the range is not known: %s", c.name, c.unclear))
		}
	}
	return states
}

// concerns reports whether the nuke may delete machines of a cluster.
func (n *Nuke) concerns(c *recordedCluster) bool {
	name, _, _ := strings.Cut(c.name, "/")
	return n.byLabels() && name == n.Cluster && c.standsOn(n.options.Platform) ||
		slices.ContainsFunc(c.ids, n.options.Range.Contains)
}

func (n *Nuke) stateOf(c *recordedCluster) State {
	other := c.elsewhere(n.Endpoint)
	s := State{Cluster: c.name, IDs: c.ids, Archived: []string{}, dir: c.dir, working: c.working,
		here: len(c.endpoints) > 0 && other == ""}
	for _, d := range c.stages {
		for _, data := range d.Record.Survives {
			n.Remarks = append(n.Remarks, fmt.Sprintf("the data %s of %s are not saved; castle destroy %s "+
				"saves them first, if the cluster still answers", data.Label, c.name, c.name))
		}
	}
	var beyond, staying []string
	for _, id := range c.ids {
		if !n.byLabels() && !n.options.Range.Contains(id) {
			beyond = append(beyond, strconv.Itoa(id))
		}
	}
	for _, g := range n.Guests {
		if !g.Goes() && (n.byLabels() || slices.Contains(c.ids, g.ID)) {
			staying = append(staying, g.Called)
		}
	}
	switch {
	case len(c.endpoints) == 0:
		s.Stays = "where its machines are was not recorded"
	case other != "":
		s.Stays = fmt.Sprintf("its machines are at %s, not here", other)
	case c.unclear != "":
		s.Stays = c.unclear
	case len(beyond) > 0:
		s.Stays = "VM " + strings.Join(beyond, ", ") + " lies outside the range"
	case len(staying) > 0:
		s.Stays = strings.Join(staying, ", ") + " stays"
	}
	return s
}

// lock locks the clusters that the nuke deletes machines of. It ends processes that are left of a dead run,
// which could still create machines. The context that it returns is cancelled when a lock is lost.
func (n *Nuke) lock(ctx context.Context, report func(string)) (context.Context, error) {
	for i := range n.States {
		s := &n.States[i]
		if !s.here {
			continue
		}
		s.run = s.dir.NewRun("nuke").ID
		notice := func(text string) { report(s.Cluster + ": " + text) }
		var err error
		if ctx, s.lock, err = run.TakeLock(ctx, s.dir, s.working, s.run, notice); err != nil {
			return ctx, err
		}
	}
	return ctx, nil
}

func (n *Nuke) unlock(ctx context.Context) error {
	var errs []error
	for _, s := range n.States {
		if s.lock != nil {
			errs = append(errs, s.lock.Lost(), s.lock.Release(ctx, "the end of a nuke", 0))
		}
	}
	return errors.Join(append(errs, n.store.Close())...)
}

// archive archives the stages of each cluster whose machines are all verified as gone. It reads the
// record again under the cluster's lock.
func (n *Nuke) archive(ctx context.Context, remaining []platform.Guest, report func(string),
	journal *state.Journal) error {
	recorded, err := n.recordedClusters(ctx)
	if err != nil {
		return err
	}
	for i := range n.States {
		s := &n.States[i]
		at := slices.IndexFunc(recorded, func(c *recordedCluster) bool { return c.name == s.Cluster })
		if s.Stays != "" || at < 0 || s.lock == nil {
			continue
		}
		c := recorded[at]
		if s.Stays = n.stateOf(c).Stays; s.Stays != "" {
			continue
		}
		its := func(g platform.Guest) bool { return n.byLabels() || slices.Contains(c.ids, g.ID) }
		if at := slices.IndexFunc(remaining, its); at >= 0 {
			s.Stays = remaining[at].Called + " is there"
			continue
		}
		ended := c.ended()
		for _, d := range ended {
			s.Archived = append(s.Archived, d.Record.Name)
			s.Outside = append(s.Outside, cluster.Outside(d.Record, d.state)...)
		}
		line := struct {
			Time    time.Time `json:"time"`
			Kind    string    `json:"kind"`
			Cluster string    `json:"cluster"`
			Stages  []string  `json:"stages"`
			Outside []string  `json:"outside,omitempty"`
		}{time.Now().UTC(), "archive", s.Cluster, s.Archived, s.Outside}
		if err := journal.Append(line); err != nil {
			return err
		}
		if err := c.archive(ended, s.run, n.options.Repository); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		report(fmt.Sprintf("%s: archived %s", c.name, strings.Join(s.Archived, ", ")))
	}
	return nil
}
