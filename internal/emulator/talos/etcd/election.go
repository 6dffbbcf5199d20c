package etcd

import (
	"fmt"
	"net/netip"
	"slices"
)

// election assigns one virtual address. Talos keeps it in etcd, independent of Kubernetes: the first
// candidate has the address, the others are in line. A machine that shuts down leaves the line at once; one
// that loses power stays until its session has ended.
type election struct {
	address netip.Addr
	line    []*candidate
	holder  *candidate // has the address now; may be nil
}

type candidate struct {
	node *Node
	lost bool // its power, and its session has not ended yet
}

// campaignLater lets a machine whose etcd member votes compete for its virtual
// addresses, as soon as it has seen that etcd is healthy.
func (d *Etcd) campaignLater(n *Node) {
	if n.campaigns {
		return
	}
	n.campaigns = true
	n.host.After(d.config.Delays.Campaign, func() {
		for _, address := range n.host.VirtualIPs() {
			e := n.member.cluster.election(address)
			e.leave(func(c *candidate) bool { return c.node == n }) // from an earlier life
			e.line = append(e.line, &candidate{node: n})
		}
		d.settle(n.member.cluster)
	})
}

// Resign removes the machine from all elections, as its clean shutdown does.
func (d *Etcd) Resign(n *Node) {
	n.campaigns = false
	if n.member == nil {
		return
	}
	for _, e := range n.member.cluster.elections {
		e.leave(func(c *candidate) bool { return c.node == n && !c.lost })
	}
	d.settle(n.member.cluster)
}

// LosePower keeps the machine's place in line until its session ends.
func (d *Etcd) LosePower(n *Node) {
	if n.member == nil {
		return
	}
	cluster := n.member.cluster
	var lost []*candidate
	for _, e := range cluster.elections {
		for _, c := range e.line {
			if c.node == n {
				c.lost = true
				lost = append(lost, c)
			}
		}
	}
	if len(lost) == 0 {
		return
	}
	d.settle(cluster)
	d.config.InTime(d.config.Delays.Session, func() {
		for _, e := range cluster.elections {
			e.leave(func(c *candidate) bool { return slices.Contains(lost, c) })
		}
		d.settle(cluster)
	})
}

// endSessionsWithoutQuorum takes all virtual addresses back if etcd has no quorum
// again by the end of the sessions.
func (d *Etcd) endSessionsWithoutQuorum(c *group) {
	if c.ending || len(c.elections) == 0 || c.elect() != 0 {
		return
	}
	c.ending = true
	d.config.InTime(d.config.Delays.Session, func() {
		c.ending = false
		if c.elect() != 0 {
			return
		}
		for _, e := range c.elections {
			for _, x := range e.line {
				x.node.campaigns = false
			}
			e.line = nil
		}
		d.settle(c)
	})
}

// settle gives every virtual address to the first in line. Without a quorum the
// holder keeps it, and no other machine gets it.
func (d *Etcd) settle(c *group) {
	for _, e := range c.elections {
		var first *candidate
		if len(e.line) != 0 && !e.line[0].lost {
			first = e.line[0]
		}
		if first != e.holder && c.elect() == 0 {
			first = nil
		}
		if first != e.holder {
			d.assign(e, first)
		}
	}
}

func (d *Etcd) assign(e *election, to *candidate) {
	address, holder := netip.PrefixFrom(e.address, e.address.BitLen()), ""
	if e.holder != nil {
		e.holder.node.host.Withdraw(address)
	}
	if to != nil {
		to.node.host.Assign(address)
		holder = to.node.host.Address()
	}
	e.holder = to
	d.config.OnVirtualIP(e.address.String(), holder)
}

// decided finds the election that has a holder for the virtual address.
func (d *Etcd) decided(virtual string) (*group, *election) {
	address, _ := netip.ParseAddr(virtual) //nolint:errcheck // no election has the zero address
	for _, n := range d.nodes {
		if n.member == nil {
			continue
		}
		for _, e := range n.member.cluster.elections {
			if e.address == address && e.holder != nil {
				return n.member.cluster, e
			}
		}
	}
	return nil, nil
}

func (c *group) election(address netip.Addr) *election {
	for _, e := range c.elections {
		if e.address == address {
			return e
		}
	}
	e := &election{address: address}
	c.elections = append(c.elections, e)
	return e
}

func (e *election) leave(who func(*candidate) bool) { e.line = slices.DeleteFunc(e.line, who) }

// InLine returns the addresses of the machines that may have the virtual address,
// its holder first; none while there is no holder.
func (d *Etcd) InLine(virtual string) []string {
	_, e := d.decided(virtual)
	if e == nil {
		return nil
	}
	var all []string
	for _, c := range e.line {
		if !c.lost {
			all = append(all, c.node.host.Address())
		}
	}
	return all
}

// MoveVirtualIP takes the virtual address from its holder, which becomes the last in line. It gives the
// address to the candidate with that address or hostname, or to the next in line if to is empty.
func (d *Etcd) MoveVirtualIP(virtual string, to *Node) error {
	cluster, e := d.decided(virtual)
	if e == nil {
		return fmt.Errorf("no machine has the virtual address %s", virtual)
	}
	i := slices.IndexFunc(e.line, func(c *candidate) bool {
		return c != e.holder && !c.lost && (to == nil || c.node == to)
	})
	if i < 0 {
		return fmt.Errorf("no other control plane is in line for %s", virtual)
	}
	next := e.line[i]
	others := slices.Delete(slices.Delete(e.line, i, i+1), 0, 1)
	e.line = slices.Concat([]*candidate{next}, others, []*candidate{e.holder})
	d.settle(cluster)
	return nil
}
