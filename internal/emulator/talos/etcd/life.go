package etcd

import (
	"errors"
	"fmt"
	"slices"
)

// Found makes the machine the first member of a new cluster.
func (d *Etcd) Found(n *Node) {
	n.recovery = nil
	n.member = (&group{}).add(n, false)
	d.Resume(n)
}

// Resume continues with the next step of the machine's member.
func (d *Etcd) Resume(n *Node) {
	switch e := n.member; {
	case e == nil:
	case e.started:
		d.promoteLater(e)
	case e.learner:
		n.host.After(d.config.Delays.Join, func() { d.startMember(e) })
	default:
		n.host.After(d.config.Delays.Start, func() { d.startMember(e) })
	}
	d.Advance()
}

func (d *Etcd) startMember(e *member) {
	e.started, e.name = true, e.node.host.Hostname()
	d.promoteLater(e)
	d.Advance()
}

func (d *Etcd) promoteLater(e *member) {
	if !e.learner {
		return
	}
	e.node.host.After(d.config.Delays.Promote, func() {
		held := d.held[e.node.host.Address()] || d.held[e.name]
		if e.learner && e.cluster.elect() != 0 && !held && !d.holdsBack(e) {
			d.promote(e)
		}
	})
}

func (d *Etcd) promote(e *member) {
	e.learner = false
	e.cluster.index++
	d.Advance()
}

// Advance announces a cluster that has begun to serve, and lets the next control
// plane join: etcd admits one learner at a time.
func (d *Etcd) Advance() {
	for _, n := range d.nodes {
		switch {
		case !n.host.Ready() || !n.host.ControlPlane() || n.left || n.recovery != nil:
		case n.member == nil:
			if c := d.joinable(n); c != nil {
				n.member = c.add(n, true)
				d.Resume(n)
				return
			}
		case n.member.removed:
		case n.member.serves() && !n.member.learner:
			d.announceLater(n)
			d.campaignLater(n)
			d.settle(n.member.cluster)
		}
	}
}

// joinable finds the etcd cluster of n's peers that admits a learner now.
func (d *Etcd) joinable(n *Node) *group {
	learner := func(e *member) bool { return e.learner }
	for _, peer := range d.nodes {
		if peer.member == nil || peer.member.removed || peer.host.CA() == "" ||
			peer.host.CA() != n.host.CA() {
			continue
		}
		if c := peer.member.cluster; !slices.ContainsFunc(c.members, learner) && c.elect() != 0 {
			return c
		}
	}
	return nil
}

// anyVoter finds a serving voter among n's peers.
func (d *Etcd) anyVoter(n *Node) *member {
	for _, peer := range d.nodes {
		if e := peer.member; e != nil && e.serves() && !e.learner && peer.host.CA() == n.host.CA() {
			return e
		}
	}
	return nil
}

func (d *Etcd) announceLater(n *Node) {
	ca := n.host.CA()
	if n.announcing || d.announced[ca] != nil {
		return
	}
	n.announcing = true
	n.host.After(d.config.Delays.Announce, func() {
		if d.announced[ca] == nil && n.member != nil {
			d.announced[ca] = n.member.cluster
			d.config.OnStart(n.host.Address(), n.member.cluster.recovered)
		}
	})
}

// leave removes the machine's member and its data.
func (d *Etcd) leave(n *Node) error {
	if e := n.member; e != nil && !e.removed {
		if err := e.cluster.removable(e); err != nil {
			return fmt.Errorf("failed to remove member %d: %w", e.id, err)
		}
		d.remove(e)
	}
	n.member, n.left = nil, true
	return nil
}

// remove ends a member. Its machine has no virtual address after that.
func (d *Etcd) remove(e *member) {
	if e.node.member == e {
		d.Resign(e.node)
	}
	e.leave()
	e.cluster.elect()
	d.settle(e.cluster)
	d.Advance()
}

// LeaveGracefully is the task leaveEtcd of a reset. The real one tries for five minutes while etcd is
// unhealthy.
func (d *Etcd) LeaveGracefully(n *Node) error {
	switch e := n.member; {
	case e == nil && n.HasData():
		return errors.New("failed to leave cluster: failed to get local etcd member ID: context deadline " +
			"exceeded")
	case e == nil || !e.serves():
		return nil
	case e.cluster.elect() == 0:
		return fmt.Errorf("failed to leave cluster: failed to remove member %d: %s", e.id, noLeader)
	}
	if err := d.leave(n); err != nil {
		return fmt.Errorf("failed to leave cluster: %w", err)
	}
	return nil
}

// Upgradable is the check of etcd before an upgrade (internal/pkg/etcd/etcd.go).
func (d *Etcd) Upgradable(n *Node) error {
	e := d.anyVoter(n)
	if e == nil {
		return errors.New("failed to create etcd client: no controlplane endpoints discovered yet")
	}
	if e.cluster.elect() == 0 {
		return errors.New("failed to acquire upgrade mutex: " + noLeader)
	}
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("error validating etcd for upgrade: "+format, args...)
	}
	if members := len(e.cluster.members); members == 2 {
		return invalid("etcd member count(%d) is insufficient to maintain quorum if upgrade commences",
			members)
	}
	for _, member := range e.cluster.members {
		switch {
		case member.name == "":
			return invalid("etcd member %016x is not started, all members must be running to perform an "+
				"upgrade", member.id)
		case !member.serves():
			return invalid("etcd member %016x is not healthy; all members must be healthy to perform an "+
				"upgrade: context deadline exceeded", member.id)
		}
	}
	return nil
}
