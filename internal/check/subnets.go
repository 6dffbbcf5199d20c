package check

import (
	"fmt"
	"net/netip"

	"github.com/hashicorp/hcl/v2"
)

// subnets are the networks inside the cluster, as the machines' configuration
// has them: Talos' own, or what a patch sets.
func (c *cluster) subnets() (pods, services []netip.Prefix) {
	for _, r := range c.rendered {
		if r.config == nil {
			continue
		}
		return prefixes(r.config.PodNetworks()), prefixes(r.config.ServiceNetworks())
	}
	return nil, nil
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

// subnetAt is the patch that sets a field of cluster.network, or else what it collides with.
func (c *cluster) subnetAt(field string, otherwise hcl.Range) (hcl.Range, string) {
	if at, found := c.inPatch(field); found {
		return at, ""
	}
	return otherwise, ", Talos' own choice,"
}

func podsOverlapNodes(c *cluster, report reporter) {
	pods, _ := c.subnets()
	c.apart(report, "Pods", "podSubnets", pods)
}

func servicesOverlapNodes(c *cluster, report reporter) {
	_, services := c.subnets()
	c.apart(report, "Services", "serviceSubnets", services)
}

func (c *cluster) apart(report reporter, whose, field string, subnets []netip.Prefix) {
	for _, p := range subnets {
		if c.network.IsValid() && p.Overlaps(c.network) {
			at, choice := c.subnetAt(field, c.at("network", "gateway"))
			report(at, fmt.Sprintf("network of %s: overlaps the machines'", whose),
				"%s%s shares addresses with %s, the network of the gateway %s (%s): packets to machines there would not leave the node. "+
					"Set cluster.network.%s in a patch of %s to another network, or move the machines.",
				p, choice, c.network, c.gateway, where(c.at("network", "gateway")), field, patchVariable)
		}
	}
}

func podsOverlapServices(c *cluster, report reporter) {
	pods, services := c.subnets()
	for _, p := range pods {
		for _, s := range services {
			if p.Overlaps(s) {
				otherwise, _ := c.subnetAt("serviceSubnets", c.at(patchVariable))
				at, _ := c.subnetAt("podSubnets", otherwise)
				report(at, "network of Pods: overlaps that of Services",
					"Pods have %s and Services %s, so one address could mean either. Set cluster.network.podSubnets and serviceSubnets apart.", p, s)
			}
		}
	}
}
