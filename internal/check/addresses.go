package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// AddressRange is a range of addresses and its owner, such as "node cp-01". Both ends belong to it.
type AddressRange struct {
	What        string
	First, Last netip.Addr

	at hcl.Range // where it is written
}

// holds reports whether an address is in the range.
func (r AddressRange) holds(a netip.Addr) bool {
	return r.First.IsValid() && a.IsValid() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// overlaps reports whether two ranges share addresses.
func (r AddressRange) overlaps(o AddressRange) bool { return r.holds(o.First) || o.holds(r.First) }

// reversed reports whether the range ends before it begins.
func (r AddressRange) reversed() bool { return r.First.Compare(r.Last) > 0 }

// IDRange is a range of VM ids. Both ends belong to it; the zero range is none.
type IDRange struct{ First, Last int }

func (r IDRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Reservations are the addresses and VM ids of a cluster, which no other one may have.
type Reservations struct {
	Cluster   string // blue/proxmox
	Network   netip.Prefix
	Gateway   netip.Addr
	Addresses []AddressRange
	VMIDs     []IDRange

	cluster *cluster
}

// ReservationsOf returns the reservations of a cluster. The cluster may have problems.
func ReservationsOf(c *config.Cluster) Reservations {
	x := newCluster(c, config.Options{})
	r := Reservations{Cluster: x.label, Network: x.network, Gateway: x.gateway.First, cluster: x,
		Addresses: x.hosts()}
	for _, p := range x.forwardPools() {
		p.What = "the " + p.What
		r.Addresses = append(r.Addresses, p)
	}
	for _, a := range append(x.dns, x.host) {
		if a.First.IsValid() {
			r.Addresses = append(r.Addresses, a)
		}
	}
	if x.ids != (IDRange{}) {
		r.VMIDs = append(r.VMIDs, x.ids)
	}
	for _, m := range x.machines {
		if m.id != 0 {
			r.VMIDs = append(r.VMIDs, IDRange{m.id, m.id})
		}
	}
	return r
}

// Text returns the value of a variable that is a string.
func (r Reservations) Text(variable string) string { return r.cluster.text(variable) }

// hosts are the machines and the VIP, as far as their addresses are known.
func (c *cluster) hosts() []AddressRange {
	both := func(m machine) []AddressRange { return []AddressRange{m.address, m.second} }
	all := append(xslices.FlatMap(c.machines, both), c.vip)
	return slices.DeleteFunc(all, func(a AddressRange) bool { return !a.First.IsValid() })
}

// forwardPools are the pools that do not end before they begin.
func (c *cluster) forwardPools() []AddressRange {
	return slices.DeleteFunc(slices.Clone(c.pools), AddressRange.reversed)
}

// gatewayOutside reports whether the gateway is wrong: its network holds no machine at all.
func (c *cluster) gatewayOutside() bool {
	known := func(m machine) bool { return m.address.First.IsValid() }
	inside := func(m machine) bool { return c.network.Contains(m.address.First) }
	return c.network.IsValid() && c.gateway.First.IsValid() && slices.ContainsFunc(c.machines, known) &&
		!slices.ContainsFunc(c.machines, inside)
}

func checkAddresses(c *cluster, report reporter) {
	if c.gatewayOutside() {
		report("gateway-outside", c.gateway.at, "network.gateway: outside of the machines' network",
			"%s makes the network %s, which holds no node. Set the gateway of the nodes' network, or "+
				"network.prefix.", c.gateway.First, c.network)
	}
	all := c.hosts()
	for _, h := range all {
		if h.First == c.host.First {
			report("node-is-proxmox", h.at, h.What+": the Proxmox host's address",
				"Neither could be reached reliably: %s is also in proxmox_endpoint (%s). Choose a free "+
					"address.", h.First, syntax.Place(c.host.at))
		}
		for _, dns := range c.dns {
			if h.First == dns.First && h.First != c.gateway.First {
				report("node-is-dns", h.at, h.What+": a name server's address",
					"Machines would query themselves: %s is also in network.dns (%s). Change one of them.",
					h.First, syntax.Place(dns.at))
			}
		}
	}
	if c.gateway.First.IsValid() {
		gateway := c.gateway
		gateway.What = "network.gateway"
		all = append(all, gateway)
	}
	for _, h := range all {
		// Even the prefix of a wrong gateway shows which two addresses these are.
		if what := reserved(c.network.Masked(), h.First); what != "" {
			report("address-reserved", h.at, h.What+": "+what,
				"No host can have %s, %s of %s. Choose another one.", h.First, what, c.network.Masked())
		}
	}
}

// reserved names the reserved address of a network that a is; "" if neither.
func reserved(network netip.Prefix, a netip.Addr) string {
	switch {
	case !network.IsValid() || network.Bits() > 30 || network.Addr().Is6():
	case a == network.Addr():
		return "the network's own address"
	case a == broadcast(network):
		return "the broadcast address"
	}
	return ""
}

func checkPools(c *cluster, report reporter) {
	var first, and string // which gives Services their addresses
	for _, one := range []struct{ variable, name, and string }{
		{poolVariables()[0], "MetalLB", " and MetalLB"}, {poolVariables()[1], "Cilium", ""},
		{"hcloud_controller_nodes", "Hetzner Cloud's controller", ""}} {
		s := c.declares[one.variable]
		switch {
		case s == nil:
		case first == "":
			first, and = one.name, fmt.Sprintf("%s (%s)%s", s.Name, syntax.Place(s.At()), one.and)
		default:
			report("load-balancer-twice", s.At(), "stage "+s.Name+": "+first+" is the load balancer already",
				"Each of them would give every Service an address. Remove this stage, or stage %s.", and)
		}
	}
	used := c.hosts()
	is := func(address netip.Addr) func(AddressRange) bool {
		return func(a AddressRange) bool { return a.First == address }
	}
	if c.api.First.IsValid() && !slices.ContainsFunc(used, is(c.api.First)) {
		used = append(used, c.api)
	}
	bgp := tfeval.Map(c.variable("cilium_bgp").Value)
	others := append([]AddressRange{c.gateway, c.host}, c.dns...)
	peers := tfeval.Map(bgp["peers"])
	for _, name := range names(peers) {
		others = append(others, c.single("router "+name, tfeval.Attribute(peers[name], "address"),
			"cilium_bgp", "peers", name, "address"))
	}
	used = append(used, xslices.Filter(others, func(a AddressRange) bool {
		return a.First.IsValid() && (a.What == c.gateway.What || a.First != c.gateway.First)
	})...)
	for _, p := range c.pools {
		if p.reversed() {
			report("pool-reversed", p.at, p.What+": ends before it begins", "Write %s-%s.", p.Last, p.First)
		}
	}
	all := c.forwardPools()
	for i, p := range all {
		within := func(n netip.Prefix) bool { return n.Contains(p.First) && n.Contains(p.Last) }
		if routed := len(bgp) > 0; c.network.IsValid() && !routed && !c.gatewayOutside() &&
			!within(c.network) && !within(c.second) {
			report("pool-outside", p.at, p.What+": outside of the network",
				"Nodes answer ARP for these addresses in %s (%s). Choose addresses of this network, outside "+
					"of the router's DHCP range.", c.network, syntax.Place(c.gateway.at))
		}
		var held []string
		for _, a := range used {
			if p.holds(a.First) {
				held = append(held, fmt.Sprintf("%s (%s, %s)", a.First, a.What, syntax.Place(a.at)))
			}
		}
		if len(held) > 0 {
			report("pool-holds", p.at, p.What+": holds addresses that are in use",
				"It holds %s, and Services would get them. Leave them out of the pool.",
				strings.Join(held, ", "))
		}
		if c.network.IsValid() && c.network.Addr().Is4() {
			for _, a := range []netip.Addr{c.network.Addr(), broadcast(c.network)} {
				if what := reserved(c.network, a); what != "" && p.holds(a) {
					report("pool-reserved", p.at, p.What+": holds "+what,
						"No Service can have %s, %s of %s. Write the pool as a range without it.", a, what,
						c.network)
				}
			}
		}
		for _, other := range all[:i] {
			if p.overlaps(other) {
				report("pools-overlap", p.at, p.What+": overlaps "+other.What,
					"The load balancer refuses them; the other one is at %s. Join or separate them.",
					syntax.Place(other.at))
			}
		}
	}
}

// checkLoadBalancers checks the addresses that manifests of the Git repository get for Services.
func checkLoadBalancers(c *cluster, report reporter) {
	pools := xslices.Map(c.pools, func(p AddressRange) string { return strings.TrimPrefix(p.What, "pool ") })
	values := tfeval.Map(c.variable("cluster_vars").Value)
	for _, name := range names(values) {
		a := c.single("", values[name], "cluster_vars", name)
		holds := func(p AddressRange) bool { return p.holds(a.First) }
		if len(c.pools) > 0 && strings.HasSuffix(name, "_lb_ip") && a.First.IsValid() &&
			!slices.ContainsFunc(c.pools, holds) {
			report(lbOutside, a.at, "cluster_vars."+name+": in no pool",
				"A Service gets %s only from a pool, and the pools are %s (%s). Change one of them.", a.First,
				strings.Join(pools, ", "), syntax.Place(c.pools[0].at))
		}
	}
}

// compareAddresses compares machines, VIPs, load balancers and pools of two clusters.
func compareAddresses(c, other *cluster, report reporter) {
	if c.door() != "" && c.door() == other.door() {
		report("endpoint-shared", c.at("api_endpoint"), "api_endpoint: that of cluster "+other.label,
			"Both have %s (%s): kubectl would reach either. Give one another name, or another api_port of "+
				"the load balancer.", c.door(), syntax.Place(other.at("api_endpoint")))
	}
	for _, a := range c.hosts() {
		for _, b := range other.hosts() {
			switch {
			case a.First != b.First:
			case a.What == c.vip.What && b.What == other.vip.What:
				report("vip-shared", a.at, "vip: that of cluster "+other.label,
					"Both have %s (%s): kubectl would reach either. Give one another address.", a.First,
					syntax.Place(b.at))
			default:
				report("address-shared", a.at, a.What+": an address of cluster "+other.label,
					"%s is that of %s there (%s). Give one another address.", a.First, b.What,
					syntax.Place(b.at))
			}
		}
		for _, p := range other.forwardPools() {
			if p.holds(a.First) {
				report("pool-holds-other", a.at, a.What+": in a pool of cluster "+other.label,
					"A Service would get %s there: it is in %s (%s). Change one of them.",
					a.First, p.What, syntax.Place(p.at))
			}
		}
	}
	for _, p := range c.forwardPools() {
		for _, b := range other.hosts() {
			if p.holds(b.First) {
				report("pool-holds-other", p.at, p.What+": holds an address of cluster "+other.label,
					"A Service would get %s, which is that of %s there (%s). Leave it out of the pool.",
					b.First, b.What, syntax.Place(b.at))
			}
		}
		for _, o := range other.forwardPools() {
			if p.overlaps(o) {
				report("pools-shared", p.at, p.What+": overlaps a pool of cluster "+other.label,
					"Services of both clusters would get the same addresses; the other one is %s (%s). "+
						"Separate the pools.", o.What, syntax.Place(o.at))
			}
		}
	}
}
