package talos

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// election decides which machine carries one virtual address. Talos holds it in
// etcd and waits for no Kubernetes: who asked first has the address, the others
// stand in line. Who shuts down steps out at once; who loses power is in the way
// until its session has ended.
type election struct {
	address netip.Addr
	line    []*candidate
	holder  *candidate // carries the address now; nil for nobody
}

type candidate struct {
	machine *machine
	gone    bool // it lost power, and etcd does not know yet
}

// virtualIP is a virtual address as a machine's configuration names it.
type virtualIP struct {
	address netip.Addr
	link    string
}

// virtualIPs lists the virtual addresses of both kinds of configuration document.
func virtualIPs(c config.Provider) []virtualIP {
	var list []virtualIP
	add := func(address, link string) {
		if a, err := netip.ParseAddr(address); err == nil {
			list = append(list, virtualIP{a, link})
		}
	}
	for _, d := range c.Machine().Network().Devices() {
		if d.VIPConfig() != nil {
			add(d.VIPConfig().IP(), d.Interface())
		}
		for _, vlan := range d.Vlans() {
			if vlan.VIPConfig() != nil {
				add(vlan.VIPConfig().IP(), fmt.Sprintf("%s.%d", d.Interface(), vlan.ID()))
			}
		}
	}
	for _, v := range c.NetworkVirtualIPConfigs() {
		list = append(list, virtualIP{v.VIP(), v.Link()})
	}
	return list
}

// uplink is the machine's network link.
func (m *machine) uplink() string {
	if len(m.Links) != 0 {
		return m.Links[0]
	}
	return "ens18"
}

// campaignLater lets a machine whose etcd member votes ask for its virtual
// addresses, as soon as it has seen that etcd is healthy.
func (f *Fleet) campaignLater(m *machine) {
	if m.campaigns {
		return
	}
	m.campaigns = true
	f.after(m, f.config.Delays.Campaign, func() { f.campaign(m) })
}

func (f *Fleet) campaign(m *machine) {
	c := m.etcd.cluster
	for _, v := range virtualIPs(m.installed.config) {
		// Talos waits without a word for a link that the machine does not have.
		if len(m.Links) != 0 && v.link != "" && !slices.Contains(m.Links, v.link) {
			continue
		}
		e := c.election(v.address)
		e.strike(m) // what an earlier life left
		e.line = append(e.line, &candidate{machine: m})
	}
	f.settle(c)
}

// resign takes the machine out of all elections, as its clean shutdown does.
func (f *Fleet) resign(m *machine) {
	m.campaigns = false
	if m.etcd == nil {
		return
	}
	for _, e := range m.etcd.cluster.elections {
		e.line = slices.DeleteFunc(e.line, func(c *candidate) bool { return c.machine == m && !c.gone })
	}
	f.settle(m.etcd.cluster)
}

// vanish is a power cut: the machine's place in line is kept until its session ends.
func (f *Fleet) vanish(m *machine) {
	if m.etcd == nil {
		return
	}
	cluster := m.etcd.cluster
	var lost []*candidate
	for _, e := range cluster.elections {
		for _, c := range e.line {
			if c.machine == m {
				c.gone = true
				lost = append(lost, c)
			}
		}
	}
	if len(lost) == 0 {
		return
	}
	f.settle(cluster)
	f.inTime(f.config.Delays.Session, func() {
		for _, e := range cluster.elections {
			e.line = slices.DeleteFunc(e.line, func(c *candidate) bool { return slices.Contains(lost, c) })
		}
		f.settle(cluster)
	})
}

// endSessionsWithoutQuorum takes the virtual addresses from everybody if etcd
// has not found a quorum again when their sessions end.
func (f *Fleet) endSessionsWithoutQuorum(c *etcdCluster) {
	if c.ending || len(c.elections) == 0 || c.elect() != 0 {
		return
	}
	c.ending = true
	f.inTime(f.config.Delays.Session, func() {
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
		f.settle(c)
	})
}

// settle gives every virtual address to who is first in line. Without a quorum
// nobody is elected; who has the address keeps it.
func (f *Fleet) settle(c *etcdCluster) {
	for _, e := range c.elections {
		var first *candidate
		if len(e.line) != 0 && !e.line[0].gone {
			first = e.line[0]
		}
		if first != e.holder && c.elect() == 0 {
			first = nil
		}
		f.hand(e, first)
	}
}

func (f *Fleet) hand(e *election, to *candidate) {
	if to == e.holder {
		return
	}
	address, holder := netip.PrefixFrom(e.address, e.address.BitLen()), ""
	if e.holder != nil {
		f.dropAddress(e.holder.machine, e.holder.machine.uplink(), address)
	}
	if to != nil {
		f.addAddress(to.machine, to.machine.uplink(), address)
		holder = to.machine.Address
	}
	e.holder = to
	if hook := f.config.Hooks.OnVirtualIP; hook != nil {
		f.later(func() { hook(e.address.String(), holder) })
	}
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

func (e *election) strike(m *machine) {
	e.line = slices.DeleteFunc(e.line, func(c *candidate) bool { return c.machine == m })
}
