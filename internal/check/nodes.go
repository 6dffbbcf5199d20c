package check

import (
	"fmt"

	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// longestLabel is how long one label of a host name may be (RFC 1123).
const longestLabel = 63

func checkNodes(c *cluster, report reporter) {
	disks := 0
	for _, m := range c.machines {
		if m.storage {
			disks++
		}
		if name := c.hostname(m); len(name) > longestLabel {
			report("name-too-long", c.at("nodes", m.name), "node "+m.name+": its host name is too long",
				"%s has %d characters, the limit is %d. Shorten the node's name.", name, len(name),
				longestLabel)
		}
	}
	for _, w := range c.config.Committed() {
		for _, r := range w.Repetitions() {
			report("key-twice", r.Second, fmt.Sprintf("variable %s: %s is there twice", w.Name, r.Key),
				"This one would silently replace that at %s. Rename or remove one of them.", where(r.First))
		}
	}
	replicas := c.variable("longhorn_replica_count")
	if n, known := tfeval.Whole(replicas.Value); known && disks > 0 && n > disks {
		report("replicas-too-many", replicas.At(), "longhorn_replica_count: more than there are disks for",
			"%d replicas need as many nodes with longhorn_disk, and there are %d (%s): no volume would "+
				"become "+
				"healthy. Set it to %d, or give more nodes a disk.", n, disks, where(c.at("nodes")), disks)
	}
}

// compareMachines compares the ids and names of machines on one Proxmox.
func compareMachines(c, other *cluster, report reporter) {
	if c.endpoint == "" || c.endpoint != other.endpoint {
		return
	}
	for _, m := range c.machines {
		for _, o := range other.machines {
			if m.id != 0 && m.id == o.id {
				report("vm-id-shared", c.at("nodes", m.name, "vm_id"), "node "+m.name+": a VM id of cluster "+
					other.label,
					"Its node %s has %d too (%s), and both clusters are on %s. Give one of them another id.",
					o.name, m.id, where(other.at("nodes", o.name, "vm_id")), c.endpoint)
			}
			if c.hostname(m) == other.hostname(o) {
				report("name-shared", c.at("nodes", m.name),
					"node "+m.name+": the name of a machine of cluster "+other.label,
					"Both would have the name %s on %s; the other one is at %s. Rename one of them.",
					c.hostname(m), c.endpoint, where(other.at("nodes", o.name)))
			}
		}
	}
	none := IDRange{}
	if c.ids != none && other.ids != none && c.ids.First <= other.ids.Last && other.ids.First <= c.ids.Last {
		report("vm-ids-overlap", c.at("vm_id_range"), "vm_id_range: overlaps that of cluster "+other.label,
			"This cluster reserves %s and the other one %s (%s), both on %s. Separate the ranges.",
			c.ids, other.ids, where(other.at("vm_id_range")), c.endpoint)
	}
}

// compareAddresses compares machines, VIPs and pools.
func compareAddresses(c, other *cluster, report reporter) {
	for _, a := range c.hosts() {
		for _, b := range other.hosts() {
			switch {
			case a.First != b.First:
			case a.What == c.vip.What && b.What == other.vip.What:
				report("vip-shared", a.at, "vip: that of cluster "+other.label,
					"Both have %s (%s): kubectl would reach either. Give one another address.", a.First,
					where(b.at))
			default:
				report("address-shared", a.at, a.What+": an address of cluster "+other.label,
					"%s is that of %s there (%s). Give one another address.", a.First, b.What, where(b.at))
			}
		}
		for _, p := range other.forwardPools() {
			if p.addresses.holds(a.First) {
				report("pool-holds-other", a.at, a.What+": in a pool of cluster "+other.label,
					"MetalLB would give %s to a Service there: it is in pool %s (%s). Change one of them.",
					a.First, p.text, where(p.addresses.at))
			}
		}
	}
	for _, p := range c.forwardPools() {
		for _, b := range other.hosts() {
			if p.addresses.holds(b.First) {
				report("pool-holds-other", p.addresses.at, "pool "+p.text+": holds an address of cluster "+
					other.label,
					"MetalLB would give %s, of %s there (%s), to a Service. Leave it out of the pool.",
					b.First, b.What, where(b.at))
			}
		}
		for _, o := range other.forwardPools() {
			if p.addresses.overlaps(o.addresses) {
				report("pools-shared", p.addresses.at, "pool "+p.text+": overlaps a pool of cluster "+
					other.label,
					"Services of both clusters would get the same addresses; the other pool is %s (%s). "+
						"Separate the pools.", o.text, where(o.addresses.at))
			}
		}
	}
}
