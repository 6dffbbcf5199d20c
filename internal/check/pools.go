package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

const poolVariable = "metallb_addresses"

func (c *cluster) poolAt(p pool) hcl.Range { return c.at(poolVariable, strconv.Itoa(p.index)) }

// good are the pools that go forward.
func (c *cluster) good() []pool {
	return slices.DeleteFunc(slices.Clone(c.pools), func(p pool) bool { return p.first.Compare(p.last) > 0 })
}

func poolReversed(c *cluster, report reporter) {
	for _, p := range c.pools {
		if p.first.Compare(p.last) > 0 {
			report(c.poolAt(p), "pool "+p.text+": ends before it begins", "Write %s-%s.", p.last, p.first)
		}
	}
}

func poolOutside(c *cluster, report reporter) {
	if !c.network.IsValid() || c.gatewayAlone() {
		return
	}
	for _, p := range c.good() {
		if !c.network.Contains(p.first) || !c.network.Contains(p.last) {
			report(c.poolAt(p), "pool "+p.text+": outside of the network",
				"MetalLB answers ARP for these addresses in %s, the network of the gateway %s (%s). Take addresses of this network, outside of the router's DHCP range.",
				c.network, c.gateway, where(c.at("network", "gateway")))
		}
	}
}

func poolHolds(c *cluster, report reporter) {
	all := c.holders()
	if c.gateway.IsValid() {
		all = append(all, holder{"the gateway", c.gateway, []string{"network", "gateway"}})
	}
	for _, a := range c.dns {
		if a.IsValid() && a != c.gateway {
			all = append(all, holder{"a name server", a, []string{"network", "dns"}})
		}
	}
	for _, p := range c.good() {
		var held []string
		for _, h := range all {
			if p.holds(h.address) {
				held = append(held, fmt.Sprintf("%s (%s, %s)", h.address, h.what, where(c.at(h.steps[0], h.steps[1:]...))))
			}
		}
		if len(held) > 0 {
			report(c.poolAt(p), "pool "+p.text+": holds addresses that are in use",
				"It holds %s; MetalLB asks nobody and would give them to Services. Leave them out of the pool.", strings.Join(held, ", "))
		}
	}
}

func poolReserved(c *cluster, report reporter) {
	taken := reserved(c.network)
	for _, p := range c.good() {
		for _, a := range []netip.Addr{c.network.Addr(), lastAddress(c.network)} {
			if what, is := taken[a]; is && p.holds(a) {
				report(c.poolAt(p), fmt.Sprintf("pool %s: holds %s", p.text, what), "%s is %s of %s and no Service can have it. Write the pool as a range without it.", a, what, c.network)
			}
		}
	}
}

func lastAddress(p netip.Prefix) netip.Addr {
	if !p.IsValid() {
		return netip.Addr{}
	}
	return lastOf(p)
}

func poolsOverlap(c *cluster, report reporter) {
	all := c.good()
	for i, p := range all {
		for _, other := range all[:i] {
			if p.overlaps(other) {
				report(c.poolAt(p), "pool "+p.text+": overlaps pool "+other.text,
					"The other one is at %s; MetalLB refuses both. Make one range of them, or part them.", where(c.poolAt(other)))
			}
		}
	}
}

// loadBalancerOutside looks at what the Git repository's manifests are given as a Service's address.
func loadBalancerOutside(c *cluster, report reporter) {
	vars := c.variable("cluster_vars")
	if len(c.pools) == 0 || !vars.Value.IsKnown() || vars.Value.IsNull() || !vars.Value.CanIterateElements() {
		return
	}
	values := vars.Value.AsValueMap()
	for _, name := range names(values) {
		a := address(values[name])
		if !strings.HasSuffix(name, "_lb_ip") || !a.IsValid() || slices.ContainsFunc(c.pools, func(p pool) bool { return p.holds(a) }) {
			continue
		}
		report(vars.At(name), "cluster_vars."+name+": in no pool",
			"MetalLB gives a Service %s only if a pool holds it, and the pools are %s (%s). Change one of them.", a, poolTexts(c.pools), where(c.at(poolVariable)))
	}
}

func poolTexts(pools []pool) string {
	var all []string
	for _, p := range pools {
		all = append(all, p.text)
	}
	return strings.Join(all, ", ")
}
