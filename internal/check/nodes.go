package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/syntax"
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
				"This one would silently replace that at %s. Rename or remove one of them.",
				syntax.Place(r.First))
		}
	}
	replicas := c.variable("longhorn_replica_count")
	if n, known := tfeval.Whole(replicas.Value); known && disks > 0 && n > disks {
		report("replicas-too-many", replicas.At(), "longhorn_replica_count: more than there are disks for",
			"%d replicas need as many nodes with longhorn_disk, and there are %d (%s): no volume would "+
				"become healthy. Set it to %d, or give more nodes a disk.", n, disks,
			syntax.Place(c.at("nodes")), disks)
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
				report("vm-id-shared", c.at("nodes", m.name, "vm_id"),
					"node "+m.name+": a VM id of cluster "+other.label,
					"Its node %s has %d too (%s), and both clusters are on %s. Give one of them another id.",
					o.name, m.id, syntax.Place(other.at("nodes", o.name, "vm_id")), c.endpoint)
			}
			if c.hostname(m) == other.hostname(o) {
				report("name-shared", c.at("nodes", m.name),
					"node "+m.name+": the name of a machine of cluster "+other.label,
					"Both would have the name %s on %s; the other one is at %s. Rename one of them.",
					c.hostname(m), c.endpoint, syntax.Place(other.at("nodes", o.name)))
			}
		}
	}
	none := IDRange{}
	if c.ids != none && other.ids != none && c.ids.First <= other.ids.Last && other.ids.First <= c.ids.Last {
		report("vm-ids-overlap", c.at("vm_id_range"), "vm_id_range: overlaps that of cluster "+other.label,
			"This cluster reserves %s and the other one %s (%s), both on %s. Separate the ranges.",
			c.ids, other.ids, syntax.Place(other.at("vm_id_range")), c.endpoint)
	}
}

// checkDisabledGates checks disabled stages: `needs = [layer]` makes no edge to them,
// so stages that need the layer start early, except the stage that checks their gates.
func checkDisabledGates(c *cluster, report reporter) {
	for _, s := range c.config.Disabled {
		var early []string
		fix := "If something else installs them, write asked_by with the stage that triggers it, which " +
			"then checks its gates"
		waiters := c.config.Waiters(s.Layer)
		ofFlux := func(w config.Waiter) bool { return w.Stage.Layer == "gitops" }
		if i := slices.IndexFunc(waiters, ofFlux); i >= 0 {
			fix = fmt.Sprintf("If Flux installs them, write asked_by = %q here, and stage %[1]s checks its "+
				"gates", waiters[i].Stage.Name)
		}
		for _, w := range waiters {
			waiter := "stage " + w.Stage.Name
			if w.Gate != nil {
				waiter = "gate " + w.Gate.Name() + " of " + waiter
			}
			if w.Stage != s.Delegate {
				early = append(early, waiter)
			}
		}
		if !s.HasGates() || len(early) == 0 || s.Delegate == nil && s.Delegated() || s.Missed() {
			continue
		}
		need := " needs "
		if len(early) > 1 {
			need = " need "
		}
		waiting := strings.Join(early, " and ") + need + s.Layer
		if by := s.Delegate; by != nil {
			report("gates-unasked", s.At(), "stage "+s.Name+": disabled, and some stages do not wait for it",
				"%s, but a disabled stage makes no edge, and stage %s of layer %s checks its gates. "+
					"Wire an input to an output of %[2]s where that matters.", waiting, by.Name, by.Layer)
		} else {
			report("gates-unasked", s.At(), "stage "+s.Name+": disabled, and no stage checks its gates",
				"%s, but a disabled stage makes no edge: nothing waits until its objects are ready. "+
					"%s; if nobody installs them, remove the block.", waiting, fix)
		}
	}
}

// checkScheduling reports a cluster whose Pods find no node: control planes are closed to them.
func checkScheduling(c *cluster, report reporter) {
	takesPods := func(r rendered) bool {
		return r.config == nil || r.role == "worker" || r.config.Cluster().ScheduleOnControlPlanes()
	}
	needsPods := slices.IndexFunc(c.config.Stages, func(s *config.Stage) bool { return len(s.InCluster) > 0 })
	open, known := tfeval.Whole(c.outputs()["platform"]["worker_count"])
	switch taints := c.variable("node_taints"); {
	case len(c.rendered) == 0 || needsPods < 0:
	case !slices.ContainsFunc(c.rendered, takesPods):
		report(noSchedulable, c.at("nodes"), "nodes: no machine takes Pods",
			"All machines are control planes, which Talos closes to Pods without a toleration, and stage %q "+
				"needs Pods. Add a worker, or set allow_scheduling_on_controlplanes = true.",
			c.config.Stages[needsPods].Name)
	case known && open == 0 && len(tfeval.Map(taints.Value)) > 0 && !c.invalid["node_taints"]:
		report("nodes-tainted", taints.At(), "node_taints: no machine takes Pods without a toleration",
			"Stage %q needs Pods, and they wait for a node for ever unless its chart's values tolerate the "+
				"taints. Leave one worker without, or end its taints in :PreferNoSchedule.",
			c.config.Stages[needsPods].Name)
	}
}
