package nuke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// State is a cluster whose machines have ids in the range.
type State struct {
	Cluster  string   `json:"cluster"`
	IDs      []int    `json:"vmids"`           // all its machines
	Stays    string   `json:"stays,omitempty"` // why its state stays
	Archived []string `json:"archived"`        // its archived stages
	// Outside lists their resources that are neither machines nor in the cluster:
	// those still exist, and only the archive records them.
	Outside []string `json:"outside,omitempty"`

	dir  *state.Dir
	here bool // it lives in the datacenter that is cleared
}

// affectedStates returns the clusters with ids in the range, and why the state of one may have to stay.
func (n *Nuke) affectedStates(recorded []*recordedCluster) []State {
	states := []State{}
	for _, c := range recorded {
		switch {
		case slices.ContainsFunc(c.ids, n.options.Range.Contains):
			states = append(states, n.stateOf(c))
		case c.unclear != "":
			n.Remarks = append(n.Remarks,
				fmt.Sprintf("whether %s has machines in the range is not known: %s", c.name, c.unclear))
		}
	}
	return states
}

func (n *Nuke) stateOf(c *recordedCluster) State {
	s := State{Cluster: c.name, IDs: c.ids, Archived: []string{}, dir: c.dir}
	other := slices.IndexFunc(
		c.endpoints,
		func(e string) bool { return !proxmox.SameEndpoint(e, n.Endpoint) },
	)
	s.here = len(c.endpoints) > 0 && other < 0
	var beyond, staying []string
	for _, id := range c.ids {
		i := slices.IndexFunc(n.Guests, func(g Guest) bool { return g.ID == id })
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

// clusterLocks are the locks of the clusters that a nuke deletes machines of.
type clusterLocks map[string]*clusterLock

type clusterLock struct {
	lock *state.Lock
	run  string
}

// lock locks the clusters in the range. It ends processes that are left of a dead run, which could still
// create machines.
func (n *Nuke) lock(ctx context.Context, report func(string)) (clusterLocks, error) {
	held := clusterLocks{}
	for _, s := range n.States {
		if !s.here {
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
		notice, err := lock.TakeOver(ctx)
		if err != nil {
			return held, err
		}
		if notice != "" {
			report(s.Cluster + ": " + notice)
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

// archive archives the stages of each cluster whose machines are all verified as gone. It reads the
// record again under the cluster's lock.
func (n *Nuke) archive(taken map[int]bool, locks clusterLocks, report func(string),
	journal *state.Deletions) error {
	recorded, err := recordedClusters(n.root)
	if err != nil {
		return err
	}
	for i := range n.States {
		s := &n.States[i]
		at := slices.IndexFunc(recorded, func(c *recordedCluster) bool { return c.name == s.Cluster })
		if s.Stays != "" || at < 0 || locks[s.Cluster] == nil {
			continue
		}
		c := recorded[at]
		if s.Stays = n.stateOf(c).Stays; s.Stays != "" {
			continue
		}
		if at := slices.IndexFunc(c.ids, func(id int) bool { return taken[id] }); at >= 0 {
			s.Stays = fmt.Sprintf("VM %d is there", c.ids[at])
			continue
		}
		for _, d := range c.ended() {
			s.Archived = append(s.Archived, d.Record.Name)
			s.Outside = append(s.Outside, d.outside()...)
		}
		line := archived{Time: time.Now().UTC(), Kind: "archive", Cluster: s.Cluster,
			Stages: s.Archived, Outside: s.Outside}
		if err := journal.Append(line); err != nil {
			return err
		}
		if err := c.archive(s.Archived, locks[s.Cluster].run, n.options.Repository); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		report(fmt.Sprintf("%s: archived %s", c.name, strings.Join(s.Archived, ", ")))
	}
	return nil
}
