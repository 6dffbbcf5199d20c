package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// forwardPools are the pools that do not end before they begin.
func (c *cluster) forwardPools() []pool {
	return slices.DeleteFunc(slices.Clone(c.pools), pool.reversed)
}

func (p pool) reversed() bool { return p.addresses.First.Compare(p.addresses.Last) > 0 }

func checkPools(c *cluster, report reporter) {
	used := c.hosts()
	for _, a := range append([]AddressRange{c.gateway}, c.dns...) {
		if a.First.IsValid() && (a.What == c.gateway.What || a.First != c.gateway.First) {
			used = append(used, a)
		}
	}
	for _, p := range c.pools {
		if p.reversed() {
			report("pool-reversed", p.addresses.at, "pool "+p.text+": ends before it begins",
				"Write %s-%s.", p.addresses.Last, p.addresses.First)
		}
	}
	all := c.forwardPools()
	for i, p := range all {
		if c.network.IsValid() && !c.gatewayOutside() &&
			!(c.network.Contains(p.addresses.First) && c.network.Contains(p.addresses.Last)) {
			report("pool-outside", p.addresses.at, "pool "+p.text+": outside of the network",
				"MetalLB answers ARP for these addresses in %s, the network of the gateway %s (%s). "+
					"Choose addresses of this network, outside of the router's DHCP range.",
				c.network, c.gateway.First, where(c.gateway.at))
		}
		var held []string
		for _, a := range used {
			if p.addresses.holds(a.First) {
				held = append(held, fmt.Sprintf("%s (%s, %s)", a.First, a.What, where(a.at)))
			}
		}
		if len(held) > 0 {
			report("pool-holds", p.addresses.at, "pool "+p.text+": holds addresses that are in use",
				"It holds %s; MetalLB would give them to Services. Leave them out of the pool.",
				strings.Join(held, ", "))
		}
		c.checkReserved(p, report)
		for _, other := range all[:i] {
			if p.addresses.overlaps(other.addresses) {
				report("pools-overlap", p.addresses.at, "pool "+p.text+": overlaps pool "+other.text,
					"MetalLB refuses both; the other one is at %s. Join or separate them.",
					where(other.addresses.at))
			}
		}
	}
}

func (c *cluster) checkReserved(p pool, report reporter) {
	if !c.network.IsValid() {
		return
	}
	for _, a := range []netip.Addr{c.network.Addr(), broadcast(c.network)} {
		if what := reserved(c.network, a); what != "" && p.addresses.holds(a) {
			report("pool-reserved", p.addresses.at, "pool "+p.text+": holds "+what,
				"No Service can have %s, %s of %s. Write the pool as a range without it.", a, what, c.network)
		}
	}
}

// checkLoadBalancers checks the addresses that manifests of the Git repository get for Services.
func checkLoadBalancers(c *cluster, report reporter) {
	vars := c.variable("cluster_vars")
	values := tfeval.Map(vars.Value)
	var pools []string
	for _, p := range c.pools {
		pools = append(pools, p.text)
	}
	for _, name := range names(values) {
		a := c.single("", values[name], "cluster_vars", name)
		if len(pools) == 0 || !strings.HasSuffix(name, "_lb_ip") || !a.First.IsValid() ||
			slices.ContainsFunc(c.pools, func(p pool) bool { return p.addresses.holds(a.First) }) {
			continue
		}
		report("lb-ip-outside", a.at, "cluster_vars."+name+": in no pool",
			"MetalLB can give a Service %s only from a pool, and the pools are %s (%s). Change one of them.",
			a.First, strings.Join(pools, ", "), where(c.at("metallb_addresses")))
	}
}
