package check

import (
	"fmt"
	"net/netip"
	"slices"
)

// holder is something that has an address of its own, and where that is written.
type holder struct {
	what    string // "node cp-01"
	address netip.Addr
	steps   []string // the variable and the way to the address in it
}

// holders are the machines and the VIP, as far as their addresses are known.
func (c *cluster) holders() []holder {
	var all []holder
	for _, m := range c.machines {
		if m.address.IsValid() {
			all = append(all, holder{"node " + m.name, m.address, []string{"nodes", m.name, "address"}})
		}
	}
	if c.vip.IsValid() {
		all = append(all, holder{"the VIP", c.vip, []string{"vip"}})
	}
	return all
}

// gatewayAlone reports whether the gateway's network holds no machine at all.
// Nothing else is then said of that network: it is the gateway that is wrong.
func (c *cluster) gatewayAlone() bool {
	known := 0
	for _, m := range c.machines {
		if c.network.Contains(m.address) {
			return false
		}
		if m.address.IsValid() {
			known++
		}
	}
	return c.network.IsValid() && known > 0
}

func gatewayOutside(c *cluster, report reporter) {
	if c.gatewayAlone() {
		report(c.at("network", "gateway"), "network.gateway: outside of the machines' network",
			"%s makes the network %s, and no node has an address there. Set the gateway of the nodes' network, or network.prefix.", c.gateway, c.network)
	}
}

func nodeOutside(c *cluster, report reporter) {
	if !c.network.IsValid() || c.gatewayAlone() {
		return
	}
	for _, m := range c.machines {
		if m.address.IsValid() && !c.network.Contains(m.address) {
			report(c.at("nodes", m.name, "address"), fmt.Sprintf("node %s: outside of the network", m.name),
				"%s is not in %s, the network of the gateway %s (%s). Give the node an address of this network.",
				m.address, c.network, c.gateway, where(c.at("network", "gateway")))
		}
	}
}

func nodeIsGateway(c *cluster, report reporter) {
	for _, m := range c.machines {
		if m.address.IsValid() && m.address == c.gateway {
			report(c.at("nodes", m.name, "address"), fmt.Sprintf("node %s: the gateway's address", m.name),
				"%s is network.gateway (%s). Give the node an address of its own.", m.address, where(c.at("network", "gateway")))
		}
	}
}

func nodeIsDNS(c *cluster, report reporter) {
	for _, h := range c.holders() {
		if h.address != c.gateway && slices.Contains(c.dns, h.address) {
			report(c.at(h.steps[0], h.steps[1:]...), h.what+": a name server's address",
				"%s is also in network.dns (%s): the machines would ask themselves. Change one of them.", h.address, where(c.at("network", "dns")))
		}
	}
}

func addressTwice(c *cluster, report reporter) {
	first := map[netip.Addr]string{}
	for _, m := range c.machines {
		if !m.address.IsValid() {
			continue
		}
		if other, twice := first[m.address]; twice {
			report(c.at("nodes", m.name, "address"), fmt.Sprintf("node %s: an address that node %s has", m.name, other),
				"Both have %s; the other one is at %s. Give each node an address of its own.", m.address, where(c.at("nodes", other, "address")))
			continue
		}
		first[m.address] = m.name
	}
}

// reserved are the two addresses of a network that no host may have.
func reserved(network netip.Prefix) map[netip.Addr]string {
	if !network.IsValid() || network.Bits() > 30 {
		return nil
	}
	return map[netip.Addr]string{network.Addr(): "the network's own address", lastOf(network): "the broadcast address"}
}

func addressReserved(c *cluster, report reporter) {
	all := c.holders()
	if c.gateway.IsValid() {
		all = append(all, holder{"network.gateway", c.gateway, []string{"network", "gateway"}})
	}
	for _, h := range all {
		// The prefix of a wrong gateway still says which two addresses these are.
		if what, is := reserved(c.network.Masked())[h.address]; is {
			report(c.at(h.steps[0], h.steps[1:]...), h.what+": "+what, "%s is %s of %s, which no host can have. Take another one.", h.address, what, c.network.Masked())
		}
	}
}

func vipOutside(c *cluster, report reporter) {
	if c.vip.IsValid() && c.network.IsValid() && !c.network.Contains(c.vip) && !c.gatewayAlone() {
		report(c.at("vip"), "vip: outside of the network",
			"%s is not in %s, the network of the gateway %s (%s): the control planes announce it there. Take a free address of this network.",
			c.vip, c.network, c.gateway, where(c.at("network", "gateway")))
	}
}

func vipIsNode(c *cluster, report reporter) {
	for _, m := range c.machines {
		if c.vip.IsValid() && m.address == c.vip {
			report(c.at("vip"), "vip: the address of node "+m.name,
				"%s belongs to the machine itself (%s), and the VIP moves from one to another. Take a free address of the network.",
				c.vip, where(c.at("nodes", m.name, "address")))
		}
	}
}

func vipIsGateway(c *cluster, report reporter) {
	if c.vip.IsValid() && c.vip == c.gateway {
		report(c.at("vip"), "vip: the gateway's address", "%s is network.gateway (%s). Take a free address of the network.", c.vip, where(c.at("network", "gateway")))
	}
}
