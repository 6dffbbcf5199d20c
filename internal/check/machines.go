package check

import (
	"fmt"

	"github.com/ephemeral-castle/castle/internal/tfeval"
)

func controlplanesEven(c *cluster, report reporter) {
	n := 0
	for _, m := range c.machines {
		switch m.role {
		case "controlplane":
			n++
		case "worker":
		default:
			return // config or a validation says so
		}
	}
	switch {
	case len(c.machines) == 0 || n%2 == 1:
	case n == 0:
		report(c.at("nodes"), "nodes: no control plane", "None of the %d nodes has role = \"controlplane\", and without one there is no cluster. Give 1, 3 or 5 of them this role.", len(c.machines))
	default:
		report(c.at("nodes"), fmt.Sprintf("nodes: %d control planes", n),
			"The number of control planes must be odd: of %d, etcd can lose no more than of %d. Add one or take one away.", n, n-1)
	}
}

func vmIDTwice(c *cluster, report reporter) {
	first := map[int]string{}
	for _, m := range c.machines {
		if m.id == 0 {
			continue
		}
		if other, twice := first[m.id]; twice {
			report(c.at("nodes", m.name, "vm_id"), fmt.Sprintf("node %s: a VM id that node %s has", m.name, other),
				"Both have %d; the other one is at %s. Give each node an id of its own.", m.id, where(c.at("nodes", other, "vm_id")))
			continue
		}
		first[m.id] = m.name
	}
}

func vmIDOutside(c *cluster, report reporter) {
	if c.ids == (span{}) || c.ids.first > c.ids.last {
		return
	}
	for _, m := range c.machines {
		if m.id != 0 && (m.id < c.ids.first || m.id > c.ids.last) {
			report(c.at("nodes", m.name, "vm_id"), fmt.Sprintf("node %s: VM id outside of vm_id_range", m.name),
				"%d is not in %s (%s), the ids that belong to this cluster. Change the id or the range.", m.id, c.ids, where(c.at("vm_id_range")))
		}
	}
}

func vmIDsReversed(c *cluster, report reporter) {
	if c.ids.first > c.ids.last {
		report(c.at("vm_id_range"), "vm_id_range: ends before it begins", "It runs from %d to %d. Exchange first and last.", c.ids.first, c.ids.last)
	}
}

// longest is how long one label of a host name may be (RFC 1123).
const longest = 63

func nameTooLong(c *cluster, report reporter) {
	for _, m := range c.machines {
		if name := c.hostname(m); len(name) > longest {
			report(c.at("nodes", m.name), fmt.Sprintf("node %s: its host name is too long", m.name),
				"%s has %d characters, and a host name has %d at most. Shorten the node's name.", name, len(name), longest)
		}
	}
}

// hostname is how a machine is called in Kubernetes and Proxmox.
func (c *cluster) hostname(m machine) string { return c.config.Name + "-" + m.name }

func keyTwice(c *cluster, report reporter) {
	for _, w := range c.config.Open() {
		for _, r := range w.Repetitions() {
			report(r.Second, fmt.Sprintf("variable %s: %s is there twice", w.Name, r.Key),
				"The first one is at %s, and this one would hide it without a word. Rename or remove one of them.", where(r.First))
		}
	}
}

func replicasTooMany(c *cluster, report reporter) {
	replicas := c.variable("longhorn_replica_count")
	n, known := tfeval.Whole(replicas.Value)
	disks := 0
	for _, m := range c.machines {
		if m.storage {
			disks++
		}
	}
	if known && disks > 0 && n > disks {
		report(replicas.At(), "longhorn_replica_count: more than there are disks for",
			"%d replicas need as many nodes with longhorn_disk, and there are %d (%s): no volume would ever become healthy. Set it to %d, or give more nodes a disk.",
			n, disks, where(c.at("nodes")), disks)
	}
}
