package check

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

const (
	podsField, servicesField = "podSubnets", "serviceSubnets"
	flannel                  = "flannel"
	// widest is how many bits kube-controller-manager divides a network of IPv6 by at most
	// (clusterSubnetMaxDiff), and widestServices how many kube-apiserver leaves to Services (maxCIDRBits).
	widest, widestServices = 16, 20
)

// checkSubnets compares the networks inside the cluster, as the machine configuration has them, with one
// another, with the machines and with their number.
func checkSubnets(c *cluster, report reporter) {
	rendered := slices.DeleteFunc(slices.Clone(c.rendered), func(r rendered) bool { return r.config == nil })
	if len(rendered) == 0 {
		return
	}
	first := rendered[0] // the networks are the cluster's, and the arguments those of the control planes
	for _, r := range slices.Backward(rendered) {
		if r.role == "controlplane" {
			first = r
		}
	}
	network := first.config.Cluster().Network()
	pods, services := prefixes(network.PodCIDRs()), prefixes(network.ServiceCIDRs())
	c.checkNodesApart(report, "pods-overlap-nodes", "Pods", podsField, pods)
	c.checkNodesApart(report, "services-overlap-nodes", "Services", servicesField, services)
	for _, p := range pods {
		for _, s := range services {
			if p.Overlaps(s) {
				at := origin(c, c.networkAt(podsField, first.at), podsField, servicesField)
				report("pods-overlap-services", at, "network of Pods: overlaps that of Services",
					"Pods have %s and Services %s, so an address could belong to either. "+
						"Set cluster.network.podSubnets and serviceSubnets apart.", p, s)
			}
		}
	}
	checkFamilies(c, report, first, pods, services)
	checkSizes(c, report, first, pods, services)
	checkNodeIPs(c, report, rendered)
	checkCNI(c, report, first)
	checkCloudController(c, report, first)
}

// subnetVariables are the variables of the machine configuration's networks.
func subnetVariables() map[string]string {
	return map[string]string{podsField: "pod_subnets", servicesField: "service_subnets"}
}

// networkAt is where the variable of a network is set, or else another place.
func (c *cluster) networkAt(field string, otherwise hcl.Range) hcl.Range {
	if w := c.variable(subnetVariables()[field]); len(tfeval.Elements(w.Value)) > 0 {
		return w.At()
	}
	return otherwise
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

func (c *cluster) checkNodesApart(report reporter, kind Kind, whose, field string, subnets []netip.Prefix) {
	at, patched := inPatch(c, field)
	source, where := "", "cluster.network."+field+" in the patch"
	if !patched {
		where = subnetVariables()[field]
		if at = c.networkAt(field, c.gateway.at); at == c.gateway.at {
			source = ", Talos' default,"
		}
	}
	for _, p := range subnets {
		for _, network := range []netip.Prefix{c.network, c.second} {
			if network.IsValid() && p.Overlaps(network) {
				report(kind, at, fmt.Sprintf("network of %s: overlaps the machines'", whose),
					"%s%s shares addresses with %s, the machines' network (%s): packets to machines there "+
						"would not leave the node. Set %s to another network, or move the machines.", p,
					source, network, syntax.Place(c.gateway.at), where)
			}
		}
	}
}

// family is the IP family of a network.
func family(p netip.Prefix) string {
	if p.Addr().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// only returns the families of networks that others do not have.
func only(of, others []netip.Prefix) []string {
	var all []string
	for _, p := range of {
		same := func(o netip.Prefix) bool { return family(o) == family(p) }
		if !slices.ContainsFunc(others, same) && !slices.Contains(all, family(p)) {
			all = append(all, family(p))
		}
	}
	return all
}

// checkFamilies compares the IP families of Pods, Services and machines. kube-apiserver advertises an
// address of the first Service network's family.
func checkFamilies(c *cluster, report reporter, first rendered, pods, services []netip.Prefix) {
	at := origin(c, c.networkAt(servicesField, first.at), servicesField, podsField)
	texts := fmt.Sprintf("Pods have %s and Services %s", joined(pods), joined(services))
	without := only(services, pods)
	for _, f := range without {
		report("services-without-pods", at, "network of Services: "+f+", and no network of Pods is",
			"%s: no Pod has an address that could be behind such a Service. Give "+
				"cluster.network.podSubnets and serviceSubnets the same families.", texts)
	}
	for _, f := range only(pods, services) {
		if len(without) > 0 {
			break // it is the same mistake
		}
		report("pods-without-services", at, "network of Pods: "+f+", and no network of Services is",
			"%s: the kubelets get no %[2]s address, and no Service has one. Give "+
				"cluster.network.podSubnets and serviceSubnets the same families.", texts, f)
	}
	nodeIPs := prefixes(first.config.Machine().Kubelet().NodeIP().ValidSubnets())
	if len(services) == 0 || len(only(services[:1], nodeIPs)) == 0 {
		return
	}
	lacks := func(m machine) bool {
		own, other := m.address.First, m.second.First
		return c.network.Contains(own) && own.Is4() != services[0].Addr().Is4() && !other.IsValid()
	}
	if i := slices.IndexFunc(c.machines, lacks); i >= 0 {
		own := netip.PrefixFrom(c.machines[i].address.First, 0)
		report("nodes-without-family", at,
			"network of Services: begins with "+family(services[0])+", and the machines have "+family(own),
			"kube-apiserver does not start on a machine without an %[1]s address: it advertises one of the "+
				"family of %[2]s. Write the %[3]s networks first in service_subnets; or give the machines "+
				"a secondary_address.", family(services[0]), services[0], family(own))
	}
}

func joined(all []netip.Prefix) string {
	return strings.Join(xslices.Map(all, netip.Prefix.String), ", ")
}

// checkSizes checks that each machine gets a range of the Pods' networks, as kube-controller-manager divides
// them. Another CNI than flannel may have ranges of its own.
func checkSizes(c *cluster, report reporter, first rendered, pods, services []netip.Prefix) {
	for _, s := range services {
		if s.Addr().BitLen()-s.Bits() > widestServices {
			report("network-too-large", origin(c, c.networkAt(servicesField, first.at), servicesField),
				"network of Services: too large",
				"kube-apiserver does not start with %s: it takes a /%d or smaller. Change "+
					"cluster.network.serviceSubnets.", s, s.Addr().BitLen()-widestServices)
		}
	}
	arguments := first.config.Cluster().ControllerManager().ExtraArgs()
	if slices.Contains(arguments["allocate-node-cidrs"], "false") {
		return
	}
	for _, p := range pods {
		mask, argument := 24, "node-cidr-mask-size-ipv4"
		if p.Addr().Is6() {
			mask, argument = 64, "node-cidr-mask-size-ipv6"
		}
		for _, text := range slices.Concat(arguments["node-cidr-mask-size"], arguments[argument]) {
			if n, err := strconv.Atoi(text); err == nil {
				mask = n
			}
		}
		ranges, at := 0, origin(c, c.networkAt(podsField, first.at), argument, "node-cidr-mask-size",
			podsField)
		if p.Bits() <= mask {
			ranges = 1 << min(mask-p.Bits(), widest+1)
		}
		switch count := len(c.rendered); {
		case p.Addr().Is6() && mask-p.Bits() > widest:
			report("network-too-large", at, "network of Pods: too large",
				"kube-controller-manager does not start with %s: it divides a /%d or smaller into the /%d "+
					"of the nodes. Change cluster.network.podSubnets.", p, mask-widest, mask)
		case ranges < count && first.config.Cluster().Network().CNI().Name() == flannel:
			report("pods-too-small", at, "network of Pods: too small for the machines",
				"Each machine takes a /%d of %s, which holds %d, and there are %d machines: a node without "+
					"one never gets ready. Set cluster.network.podSubnets to a /%d or larger, or another "+
					"%s in cluster.controllerManager.extraArgs.", mask, p, ranges, count,
				mask-bits.Len(uint(count-1)), argument)
		}
	}
}

// checkNodeIPs checks that the subnets to which kubelet and etcd are limited hold the machines.
func checkNodeIPs(c *cluster, report reporter, all []rendered) {
	limits := []struct {
		what, field string
		subnets     func(r rendered) []string
	}{
		{"kubelet", "machine.kubelet.nodeIP.validSubnets", func(r rendered) []string {
			return r.config.Machine().Kubelet().NodeIP().ValidSubnets()
		}},
		{"etcd", "cluster.etcd.advertisedSubnets", func(r rendered) []string {
			if r.role != "controlplane" {
				return nil
			}
			return r.config.Cluster().Etcd().AdvertisedSubnets()
		}},
	}
	for _, limit := range limits {
		var outside []string
		field := limit.field[strings.LastIndexByte(limit.field, '.')+1:]
		subnets := ""
		for _, r := range all {
			at := slices.IndexFunc(c.machines, func(m machine) bool {
				second := m.second.First
				return m.name == r.machine && !selects(limit.subnets(r), m.address.First) &&
					(!second.IsValid() || !selects(limit.subnets(r), second))
			})
			if at >= 0 {
				outside = append(outside, fmt.Sprintf("%s (%s)", r.machine, c.machines[at].address.First))
				subnets = strings.Join(limit.subnets(r), ", ")
			}
		}
		if len(outside) > 0 {
			report("node-ip-outside", origin(c, all[0].at, field),
				limit.field+": holds no address of a machine",
				"%s of %s waits for an address in %s, and nodes (%s) gives another one. Name the network of "+
					"the machines, or ignore this warning if they have further addresses.", limit.what,
				bounded(outside), subnets, syntax.Place(c.at("nodes")))
		}
	}
}

// selects reports whether Talos takes an address by its list of subnets, in which ! excludes one.
func selects(subnets []string, a netip.Addr) bool {
	in := func(texts []string) bool {
		return slices.ContainsFunc(prefixes(texts), func(p netip.Prefix) bool { return p.Contains(a) })
	}
	var wanted, excluded []string
	for _, text := range subnets {
		if without, is := strings.CutPrefix(text, "!"); is {
			excluded = append(excluded, without)
		} else {
			wanted = append(wanted, text)
		}
	}
	return !a.IsValid() || !in(excluded) && (len(wanted) == 0 || in(wanted))
}

// bounded joins up to four names, and counts the others.
func bounded(all []string) string {
	const most = 4
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
