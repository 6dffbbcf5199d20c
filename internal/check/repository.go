package check

import "fmt"

// sameHost reports whether two clusters live on one Proxmox.
func sameHost(c, other *cluster) bool { return c.endpoint != "" && c.endpoint == other.endpoint }

func vmIDShared(c, other *cluster, report reporter) {
	if !sameHost(c, other) {
		return
	}
	for _, m := range c.machines {
		for _, o := range other.machines {
			if m.id != 0 && m.id == o.id {
				report(c.at("nodes", m.name, "vm_id"), fmt.Sprintf("node %s: a VM id of cluster %s", m.name, other.label),
					"Its node %s has %d too (%s), and both clusters are on %s. Give one of them another id.",
					o.name, m.id, where(other.at("nodes", o.name, "vm_id")), c.endpoint)
			}
		}
	}
}

func vmIDsOverlap(c, other *cluster, report reporter) {
	none := span{}
	if sameHost(c, other) && c.ids != none && other.ids != none && c.ids.first <= other.ids.last && other.ids.first <= c.ids.last {
		report(c.at("vm_id_range"), fmt.Sprintf("vm_id_range: overlaps that of cluster %s", other.label),
			"This cluster claims %s and the other one %s (%s), both on %s. Part the ranges.", c.ids, other.ids, where(other.at("vm_id_range")), c.endpoint)
	}
}

func nameShared(c, other *cluster, report reporter) {
	if !sameHost(c, other) {
		return
	}
	for _, m := range c.machines {
		for _, o := range other.machines {
			if c.hostname(m) == other.hostname(o) {
				report(c.at("nodes", m.name), fmt.Sprintf("node %s: the name of a machine of cluster %s", m.name, other.label),
					"Both would be called %s on %s; the other one is at %s. Rename one of them.", c.hostname(m), c.endpoint, where(other.at("nodes", o.name)))
			}
		}
	}
}

func vipShared(c, other *cluster, report reporter) {
	if c.vip.IsValid() && c.vip == other.vip {
		report(c.at("vip"), "vip: that of cluster "+other.label,
			"Both have %s (%s): kubectl would reach now the one, now the other. Give one of them another address.", c.vip, where(other.at("vip")))
	}
}

func addressShared(c, other *cluster, report reporter) {
	for _, h := range c.holders() {
		for _, o := range other.holders() {
			if h.address != o.address || h.what == o.what && h.steps[0] == "vip" {
				continue
			}
			report(c.at(h.steps[0], h.steps[1:]...), fmt.Sprintf("%s: an address of cluster %s", h.what, other.label),
				"%s is that of %s there (%s). Give one of them another address.", h.address, o.what, where(other.at(o.steps[0], o.steps[1:]...)))
		}
	}
}

func poolsShared(c, other *cluster, report reporter) {
	for _, p := range c.good() {
		for _, o := range other.good() {
			if p.overlaps(o) {
				report(c.poolAt(p), fmt.Sprintf("pool %s: overlaps a pool of cluster %s", p.text, other.label),
					"The other one is %s (%s), and Services of both clusters would get the same addresses. Part the pools.", o.text, where(other.poolAt(o)))
			}
		}
	}
}

func poolHoldsOther(c, other *cluster, report reporter) {
	for _, p := range c.good() {
		for _, o := range other.holders() {
			if p.holds(o.address) {
				report(c.poolAt(p), fmt.Sprintf("pool %s: holds an address of cluster %s", p.text, other.label),
					"%s is that of %s there (%s), and MetalLB would give it to a Service. Leave it out of the pool.",
					o.address, o.what, where(other.at(o.steps[0], o.steps[1:]...)))
			}
		}
	}
	for _, h := range c.holders() {
		for _, o := range other.good() {
			if o.holds(h.address) {
				report(c.at(h.steps[0], h.steps[1:]...), fmt.Sprintf("%s: in a pool of cluster %s", h.what, other.label),
					"%s is in its pool %s (%s), and MetalLB would give it to a Service there. Change one of them.", h.address, o.text, where(other.poolAt(o)))
			}
		}
	}
}
