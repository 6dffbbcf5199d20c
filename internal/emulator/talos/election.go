package talos

import (
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
	machine *machine
	lost    bool // its power, and its session has not ended yet
}

// campaignLater lets a machine whose etcd member votes compete for its virtual
// addresses, as soon as it has seen that etcd is healthy.
func (d *etcd) campaignLater(m *machine) {
	if m.campaigns {
		return
	}
	m.campaigns = true
	d.world.after(m, d.world.config.Delays.Campaign, func() {
		for _, v := range m.installed.VirtualIPs() {
			// Talos waits silently for a link that the machine does not have.
			if !m.reaches(m.installed.Provider, v.Link) {
				continue
			}
			e := m.etcd.cluster.election(v.Address)
			e.leave(func(c *candidate) bool { return c.machine == m }) // from an earlier life
			e.line = append(e.line, &candidate{machine: m})
		}
		d.settle(m.etcd.cluster)
	})
}

// resign removes the machine from all elections, as its clean shutdown does.
func (d *etcd) resign(m *machine) {
	m.campaigns = false
	if m.etcd == nil {
		return
	}
	for _, e := range m.etcd.cluster.elections {
		e.leave(func(c *candidate) bool { return c.machine == m && !c.lost })
	}
	d.settle(m.etcd.cluster)
}

// losePower keeps the machine's place in line until its session ends.
func (d *etcd) losePower(m *machine) {
	if m.etcd == nil {
		return
	}
	cluster := m.etcd.cluster
	var lost []*candidate
	for _, e := range cluster.elections {
		for _, c := range e.line {
			if c.machine == m {
				c.lost = true
				lost = append(lost, c)
			}
		}
	}
	if len(lost) == 0 {
		return
	}
	d.settle(cluster)
	d.world.inTime(d.world.config.Delays.Session, func() {
		for _, e := range cluster.elections {
			e.leave(func(c *candidate) bool { return slices.Contains(lost, c) })
		}
		d.settle(cluster)
	})
}

// endSessionsWithoutQuorum takes all virtual addresses back if etcd has no quorum
// again by the end of the sessions.
func (d *etcd) endSessionsWithoutQuorum(c *etcdCluster) {
	if c.ending || len(c.elections) == 0 || c.elect() != 0 {
		return
	}
	c.ending = true
	d.world.inTime(d.world.config.Delays.Session, func() {
		c.ending = false
		if c.elect() != 0 {
			return
		}
		for _, e := range c.elections {
			for _, x := range e.line {
				x.machine.campaigns = false
			}
			e.line = nil
		}
		d.settle(c)
	})
}

// settle gives every virtual address to the first in line. Without a quorum the
// holder keeps it, and no other machine gets it.
func (d *etcd) settle(c *etcdCluster) {
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

func (d *etcd) assign(e *election, to *candidate) {
	address, holder := netip.PrefixFrom(e.address, e.address.BitLen()), ""
	if e.holder != nil {
		e.holder.machine.resources.DropAddress(e.holder.machine.uplink(), address)
	}
	if to != nil {
		to.machine.resources.AddAddress(to.machine.uplink(), address)
		holder = to.machine.spec.Address
	}
	e.holder = to
	if hook := d.world.config.Hooks.OnVirtualIP; hook != nil {
		d.world.later(func() { hook(e.address.String(), holder) })
	}
}

// decided finds the election that has a holder for the virtual address.
func (d *etcd) decided(virtual string) (*etcdCluster, *election) {
	address, _ := netip.ParseAddr(virtual) //nolint:errcheck // no election has the zero address
	for _, m := range d.world.machines {
		if m.etcd == nil {
			continue
		}
		for _, e := range m.etcd.cluster.elections {
			if e.address == address && e.holder != nil {
				return m.etcd.cluster, e
			}
		}
	}
	return nil, nil
}

func (c *etcdCluster) election(address netip.Addr) *election {
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
