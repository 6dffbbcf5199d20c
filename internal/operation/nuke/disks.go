package nuke

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/proxmox"
)

// Disk is a disk that carries an id of the range and that no guest uses.
type Disk = proxmox.Orphan

// noteMachines passes the recorded machines of this datacenter's clusters to the ownership check.
func (n *Nuke) noteMachines(recorded []*recordedCluster) {
	n.ownership.Known = map[int]proxmox.Known{}
	for _, c := range recorded {
		elsewhere := slices.ContainsFunc(
			c.endpoints,
			func(e string) bool { return !proxmox.SameEndpoint(e, n.Endpoint) },
		)
		if len(c.endpoints) == 0 || elsewhere {
			continue
		}
		for id, machine := range c.machinesOf {
			n.ownership.Known[id] = proxmox.Known{Cluster: c.name, Machine: machine}
		}
	}
}

// findDisks finds disks that no guest uses. A storage that it could not read is a remark: castle never
// reports a disk there as gone.
func (n *Nuke) findDisks(ctx context.Context) error {
	orphans, unseen, err := n.client.Orphans(ctx, n.options.Range, func(id int) string {
		i := slices.IndexFunc(n.Guests, func(g Guest) bool { return g.ID == id })
		if i < 0 || n.Guests[i].Goes() {
			return ""
		}
		return fmt.Sprintf("guest %d stays", id)
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && n.options.Unreferenced:
		return n.noAnswer(err)
	case err != nil:
		n.Remarks = append(n.Remarks, fmt.Sprintf("which disks nothing uses could not be asked: %v", err))
	}
	n.Remarks = append(n.Remarks, unseen...)
	for _, o := range orphans {
		i := slices.IndexFunc(n.Guests, func(g Guest) bool { return g.ID == o.ID })
		if i >= 0 && (n.Guests[i].subject.Hidden || n.Guests[i].subject.Unreadable != "") {
			continue // that guest's disks are unknown
		}
		o.Chosen = n.options.Unreferenced
		n.Disks = append(n.Disks, o)
	}
	return nil
}

func (n *Nuke) deleteDisks(ctx context.Context, removal *proxmox.Removal) error {
	for i := range n.Disks {
		d := &n.Disks[i]
		if !d.Goes() {
			continue
		}
		if err := removal.Free(ctx, *d); err != nil {
			return err
		}
		d.Deleted = true
	}
	return nil
}

// noAnswer adds a fix to an error of Proxmox.
func (n *Nuke) noAnswer(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	switch proxmox.KindOf(err) {
	case proxmox.Other:
		return fmt.Errorf(
			"%w\n  nothing was deleted; is %s the right endpoint (--endpoint, PROXMOX_VE_ENDPOINT), "+
				"can it be reached from here, and is its certificate known (--ca-file)?",
			err,
			n.Endpoint,
		)
	case proxmox.Unauthorized:
		return fmt.Errorf("%w\n  nothing was deleted; %s does not know the API token: "+
			"set another in PROXMOX_VE_API_TOKEN", err, n.Endpoint)
	case proxmox.Forbidden:
		return fmt.Errorf("%w\n  nothing was deleted; the API token lacks a privilege: "+
			"give it one, or set another in PROXMOX_VE_API_TOKEN", err)
	}
	return fmt.Errorf("%w\n  nothing was deleted", err)
}
