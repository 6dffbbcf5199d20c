package castle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// NukeState is a cluster whose machines have ids in the range.
type NukeState struct {
	Cluster  string   `json:"cluster"`
	IDs      []int    `json:"vmids"`           // all its machines
	Stays    string   `json:"stays,omitempty"` // why its state is left as it is
	Archived []string `json:"archived"`        // its stages that were
	// Outside names what those stages own that is neither a machine nor in the
	// cluster: it is still there, and only the archive knows of it.
	Outside []string `json:"outside,omitempty"`

	dir   *state.Dir
	joint bool // it lives in the datacenter that is cleared
}

// raisedCluster is what the state directory knows of a cluster's machines.
type raisedCluster struct {
	name       string // blue/proxmox
	dir        *state.Dir
	datacenter proxmox.Options
	endpoints  []string
	ids        []int
	unclear    string // why ids may not be all of them
	stages     []*Doomed
	roots      []string // the stages that own machines
}

// raisedIn reads all clusters that were recorded below a root.
func raisedIn(root string) ([]*raisedCluster, error) {
	names, err := state.Clusters(root)
	if err != nil {
		return nil, err
	}
	var all []*raisedCluster
	for _, name := range names {
		cluster, platform, _ := strings.Cut(name, "/")
		dir, err := state.Open(root, cluster, platform)
		if err != nil {
			return nil, err
		}
		c := &raisedCluster{name: name, dir: dir}
		if err := c.read(); err != nil {
			c.unclear = err.Error()
		}
		all = append(all, c)
	}
	return all, nil
}

// read takes a cluster's machines from what the preflights were asked and from
// the states; either may know one that the other does not.
func (c *raisedCluster) read() error {
	names, err := c.dir.Stages()
	if err != nil {
		return err
	}
	var unclear error
	for _, name := range names {
		d := &Doomed{Record: state.Record{Name: name}}
		rec, err := c.dir.Stage(name).Record()
		if err == nil {
			d.Record = rec
		} else if !errors.Is(err, fs.ErrNotExist) {
			unclear = errors.Join(unclear, err)
		}
		if d.state, err = c.dir.Stage(name).LastKnown(); err != nil {
			unclear = errors.Join(unclear, err)
			d.state = &state.State{}
		}
		if d.state.Notice != "" { // an older state may lack a machine
			unclear = errors.Join(unclear, fmt.Errorf("stage %s: %s", name, d.state.Notice))
		}
		c.stages = append(c.stages, d)
		unclear = errors.Join(unclear, c.machines(d))
	}
	slices.Sort(c.ids)
	c.ids = slices.Compact(c.ids)
	return unclear
}

func (c *raisedCluster) machines(d *Doomed) error {
	has := false
	for _, check := range d.Record.Preflights {
		if check.Type != proxmox.PreflightVMIDs {
			continue
		}
		values, err := check.Decode()
		if err != nil {
			return err
		}
		datacenter, ids, err := proxmox.Recorded(gate.Values(values))
		if err != nil {
			return err
		}
		has, c.datacenter = true, datacenter
		c.endpoints = append(c.endpoints, datacenter.Endpoint)
		c.ids = append(c.ids, ids...)
	}
	for _, res := range d.state.Managed() {
		id, isGuest := proxmox.GuestID(res.Type, res.Attributes)
		switch {
		case isGuest && id == 0:
			return fmt.Errorf("the id of %s is not known", res.Address)
		case isGuest:
			has = true
			c.ids = append(c.ids, id)
		}
	}
	if has {
		c.roots = append(c.roots, d.Record.Name)
	}
	return nil
}

// concerned are the clusters that have ids in the range, with what has to be
// true before their states may go as far as it can be told now.
func (n *Nuke) concerned(raised []*raisedCluster) []NukeState {
	states := []NukeState{}
	for _, c := range raised {
		if slices.ContainsFunc(c.ids, n.options.Range.Contains) {
			states = append(states, n.prospect(c))
		}
	}
	return states
}

func (n *Nuke) prospect(c *raisedCluster) NukeState {
	s := NukeState{Cluster: c.name, IDs: c.ids, Archived: []string{}, dir: c.dir}
	other := slices.IndexFunc(c.endpoints, func(e string) bool { return !proxmox.SameEndpoint(e, n.Endpoint) })
	s.joint = len(c.endpoints) > 0 && other < 0
	var beyond, staying []string
	for _, id := range c.ids {
		i := slices.IndexFunc(n.Guests, func(g NukeGuest) bool { return g.ID == id })
		switch {
		case !n.options.Range.Contains(id):
			beyond = append(beyond, fmt.Sprint(id))
		case i >= 0 && !n.Guests[i].Goes():
			staying = append(staying, fmt.Sprint(id))
		}
	}
	switch {
	case len(c.endpoints) == 0:
		s.Stays = "where its machines are was not recorded"
	case other >= 0:
		s.Stays = fmt.Sprintf("its machines are at %s, not here", c.endpoints[other])
	case c.unclear != "":
		s.Stays = c.unclear
	case len(beyond) > 0:
		s.Stays = "VM " + strings.Join(beyond, ", ") + " lies outside the range"
	case len(staying) > 0:
		s.Stays = "VM " + strings.Join(staying, ", ") + " stays"
	}
	return s
}

// clusterLocks are the locks of the clusters that a nuke takes machines from.
type clusterLocks map[string]*clusterLock

type clusterLock struct {
	lock *state.Lock
	run  string
}

// lock keeps every other castle off the clusters in the range, and ends what
// survives of one that died: it could be making machines this moment.
func (n *Nuke) lock(ctx context.Context, report func(string)) (clusterLocks, error) {
	held := clusterLocks{}
	for _, s := range n.States {
		if !s.joint {
			continue
		}
		run, err := s.dir.NewRun("nuke")
		if err != nil {
			return held, err
		}
		lock, err := s.dir.Lock(run.ID)
		if err != nil {
			return held, err
		}
		held[s.Cluster] = &clusterLock{lock: lock, run: run.ID}
		if lock.Previous == "" {
			continue
		}
		ended, err := state.EndSurvivors(ctx, lock.Previous)
		if err != nil {
			return held, fmt.Errorf("end what survives of run %s: %w", lock.Previous, err)
		}
		report(fmt.Sprintf("%s: run %s died without finishing; ended %d of its processes", s.Cluster, lock.Previous, len(ended)))
		if err := lock.TakeOver(); err != nil {
			return held, err
		}
	}
	return held, nil
}

func (l clusterLocks) unlock() error {
	var errs []error
	for _, c := range l {
		errs = append(errs, c.lock.Unlock())
	}
	return errors.Join(errs...)
}

// archived is a line of the journal.
type archived struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Cluster string    `json:"cluster"`
	Stages  []string  `json:"stages"`
	Outside []string  `json:"outside,omitempty"`
}

// archive forgets, of each cluster whose machines are all proved gone, what
// ended with them. What was recorded is read anew, under the cluster's lock.
func (n *Nuke) archive(ctx context.Context, locks clusterLocks, report func(string), journal *state.Deletions) error {
	raised, err := raisedIn(n.root)
	if err != nil {
		return err
	}
	for i := range n.States {
		s := &n.States[i]
		at := slices.IndexFunc(raised, func(c *raisedCluster) bool { return c.name == s.Cluster })
		if s.Stays != "" || at < 0 || locks[s.Cluster] == nil {
			continue
		}
		c := raised[at]
		if s.Stays = n.prospect(c).Stays; s.Stays != "" {
			continue
		}
		for _, id := range c.ids {
			taken, err := n.client.Taken(ctx, id)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if taken {
				s.Stays = fmt.Sprintf("VM %d is there", id)
			}
		}
		if s.Stays != "" {
			continue
		}
		for _, d := range c.ended() {
			s.Archived = append(s.Archived, d.Record.Name)
			s.Outside = append(s.Outside, d.outside()...)
		}
		if err := journal.Append(archived{Time: time.Now().UTC(), Kind: "archive", Cluster: s.Cluster, Stages: s.Archived, Outside: s.Outside}); err != nil {
			return err
		}
		if err := c.forget(s.Archived, locks[s.Cluster].run); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		report(fmt.Sprintf("%s: archived %s", c.name, strings.Join(s.Archived, ", ")))
	}
	return nil
}

// ended are the stages that end with the cluster's machines: those that own
// them and, unless they are persistent, those that need one of these. The
// stages that own machines come last, so that a nuke cut short here finds them.
func (c *raisedCluster) ended() []*Doomed {
	gone := map[string]bool{}
	for _, name := range c.roots {
		gone[name] = true
	}
	for grown := true; grown; {
		grown = false
		for _, d := range c.stages {
			needs := slices.ContainsFunc(d.Record.Needs, func(need string) bool { return gone[need] })
			if !gone[d.Record.Name] && !d.Record.Persistent && needs {
				gone[d.Record.Name], grown = true, true
			}
		}
	}
	var above, roots []*Doomed
	for _, d := range c.stages {
		switch {
		case slices.Contains(c.roots, d.Record.Name):
			roots = append(roots, d)
		case gone[d.Record.Name]:
			above = append(above, d)
		}
	}
	return append(above, roots...)
}

// outside are the stage's resources that the end of the machines did not end.
func (d *Doomed) outside() []string {
	var left []string
	for _, res := range d.state.Managed() {
		if _, isGuest := proxmox.GuestID(res.Type, res.Attributes); !isGuest && !slices.Contains(d.Record.InCluster, res.Provider) {
			left = append(left, res.Address)
		}
	}
	return left
}

// forget archives stages and removes the files that led to the cluster.
func (c *raisedCluster) forget(stages []string, run string) error {
	for _, path := range []string{c.dir.Kubeconfig(), c.dir.Talosconfig()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, stage := range stages {
		if err := c.dir.Stage(stage).Archive(run); err != nil {
			return err
		}
	}
	return c.dir.ClearRecreation()
}
