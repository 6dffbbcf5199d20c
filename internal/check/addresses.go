package check

import (
	"fmt"
	"net/netip"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/talos"
)

// gatewayOutside reports whether the gateway's network holds no machine at all.
// Then the gateway is wrong, and nothing is concluded from its network.
func (c *cluster) gatewayOutside() bool {
	known := 0
	for _, m := range c.machines {
		if c.network.Contains(m.address.First) {
			return false
		}
		if m.address.First.IsValid() {
			known++
		}
	}
	return c.network.IsValid() && known > 0
}

func checkAddresses(c *cluster, report reporter) {
	if c.gatewayOutside() {
		report("gateway-outside", c.gateway.at, "network.gateway: outside of the machines' network",
			"%s makes the network %s, which holds no node. Set the gateway of the nodes' network, or "+
				"network.prefix.",
			c.gateway.First, c.network)
	}
	all := c.hosts()
	for _, h := range all {
		for _, dns := range c.dns {
			if h.First == dns.First && h.First != c.gateway.First {
				report("node-is-dns", h.at, h.What+": a name server's address",
					"Machines would query themselves: %s is also in network.dns (%s). Change one of them.",
					h.First, where(dns.at))
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
	case !network.IsValid() || network.Bits() > 30:
	case a == network.Addr():
		return "the network's own address"
	case a == broadcast(network):
		return "the broadcast address"
	}
	return ""
}

// checkSubnets compares the networks inside the cluster in the machine configuration: Talos' defaults, or
// those of a patch.
func checkSubnets(c *cluster, report reporter) {
	var config *talos.MachineConfig
	for _, r := range c.rendered {
		if config = r.config; config != nil {
			break
		}
	}
	if config == nil {
		return
	}
	network := config.Cluster().Network()
	pods, services := prefixes(network.PodCIDRs()), prefixes(network.ServiceCIDRs())
	c.checkNodesApart(report, "pods-overlap-nodes", "Pods", "podSubnets", pods)
	c.checkNodesApart(report, "services-overlap-nodes", "Services", "serviceSubnets", services)
	for _, p := range pods {
		for _, s := range services {
			if p.Overlaps(s) {
				at, _ := c.subnetAt("podSubnets", c.at(patchVariable))
				if _, patched := inPatch(c, "podSubnets"); !patched {
					at, _ = c.subnetAt("serviceSubnets", c.at(patchVariable))
				}
				report("pods-overlap-services", at, "network of Pods: overlaps that of Services",
					"Pods have %s and Services %s, so an address could belong to either. "+
						"Set cluster.network.podSubnets and serviceSubnets apart.", p, s)
			}
		}
	}
}

func prefixes(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}

// subnetAt is the patch that sets a field of cluster.network, or else another place.
func (c *cluster) subnetAt(field string, otherwise hcl.Range) (hcl.Range, string) {
	if at, found := inPatch(c, field); found {
		return at, ""
	}
	return otherwise, ", Talos' default,"
}

func (c *cluster) checkNodesApart(report reporter, kind Kind, whose, field string, subnets []netip.Prefix) {
	for _, p := range subnets {
		if c.network.IsValid() && p.Overlaps(c.network) {
			at, origin := c.subnetAt(field, c.gateway.at)
			report(kind, at, fmt.Sprintf("network of %s: overlaps the machines'", whose),
				"%s%s shares addresses with %s, the network of the gateway %s (%s): packets to machines "+
					"there "+
					"would not leave the node. Set cluster.network.%s in a patch of %s to another network, "+
					"or move the machines.",
				p, origin, c.network, c.gateway.First, where(c.gateway.at), field, patchVariable)
		}
	}
}
