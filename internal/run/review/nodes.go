package review

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// NodeError reports that castle left a stage unchanged because its plan takes nodes out of a cluster that
// runs. The nodes of a stage are those of its output machines, with their roles, or else the keys of its
// output node_addresses. Then the control planes are those at an endpoint of the talosconfig; without one,
// any node may be a control plane.
type NodeError struct {
	Lost   []LostNode
	Begun  []LostNode // control planes that an earlier run destroyed, or began to
	Never  bool       // even with the flag: etcd would not survive it
	Of     int        // control planes before
	create string
	again  string // the command that creates the cluster anew
}

// What a plan does to a node's machine.
const (
	removed  = "removed"
	replaced = "replaced"
	demoted  = "demoted to a worker"
	gone     = "gone, and this plan makes it again"
)

// LostNode is a node that a plan takes away.
type LostNode struct {
	Name, Address, Node string // cp-02, 192.168.1.212, blue-cp-02
	How                 string
	ControlPlane        bool
}

func (e *NodeError) Error() string {
	var b strings.Builder
	destroyed, lost := e.controlPlanes()
	shown := e.Lost
	if e.Never {
		fmt.Fprintf(&b, "it would destroy %d of %d control planes in one apply, and etcd with them; "+
			"nothing was changed, and --force-node-removal does not permit it:", destroyed, e.Of)
		shown = slices.Concat(e.Lost, e.Begun)
	} else {
		b.WriteString("it would take nodes out of a cluster that runs; nothing was changed:")
	}
	for _, n := range shown {
		role := "worker"
		if n.ControlPlane {
			role = "control plane"
		}
		fmt.Fprintf(&b, "\n  %s %s at %s: %s", role, n.Name, n.Address, n.How)
	}
	switch {
	case e.Never && len(lost) == e.Of:
		return b.String() + "\n  no control plane would be left; create the cluster anew: " + e.again
	case e.Never && len(e.Begun) > 0:
		return b.String() + "\n  undo the other changes, so that only " + e.Begun[0].Name + " is made: " +
			e.create + "\n  then change one after the other; or create the cluster anew: " + e.again
	}
	b.WriteString("\n  take one after the other out of the cluster (a reset control plane leaves etcd):")
	for _, n := range e.Lost {
		reset := "reset"
		switch {
		case n.How == replaced && !(e.Never && n.ControlPlane):
			continue
		case n.How == demoted: // the machine stays, and waits for its new configuration
			reset = "reset --system-labels-to-wipe STATE --system-labels-to-wipe EPHEMERAL --reboot"
		}
		fmt.Fprintf(&b, "\n    kubectl drain %s --ignore-daemonsets --delete-emptydir-data"+
			"\n    talosctl -n %s %s\n    kubectl delete node %s", n.Node, n.Address, reset, n.Node)
	}
	b.WriteString("\n  then: " + e.create + " --force-node-removal")
	if e.Never {
		b.WriteString("; or create the cluster anew: " + e.again)
	}
	return b.String()
}

// checkNodes returns a *NodeError if a plan takes nodes out of a cluster that runs: always if etcd would not
// survive it, and without force if a node is removed or is no control plane any more. before is the stage's
// state. A replaced machine is a loss like any other, which the user confirms.
func checkNodes(ctx context.Context, r *run.Run, before *state.State, intent *state.Intent,
	plan *terraform.Plan, force bool) error {
	was := newNodes(before.Outputs)
	if len(was.addresses) == 0 || plan.Empty {
		return nil
	}
	access, err := accessOf(r)
	if err != nil || access.Kubeconfig == nil {
		return err
	}
	values, known, err := plan.Outputs(ctx)
	if err != nil {
		return err
	}
	planned := map[string]state.Output{}
	for name, value := range values {
		planned[name] = state.Output{Value: value}
	}
	is := newNodes(planned)
	listed := is.listed
	fates := machineFates(plan.Changes, before, intent)
	e := &NodeError{
		create: r.Cluster.Command("create"), again: r.Cluster.Command("recreate"),
	}
	var stays []string
	needsForce := false
	for _, name := range slices.Sorted(maps.Keys(was.addresses)) {
		n := LostNode{Name: name, Address: was.addresses[name], ControlPlane: was.isControlPlane(name),
			Node: r.Cluster.Config.Name + "-" + name}
		fate := fates[name]
		if !fate.begun {
			n.How = fate.how
		}
		_, remains := is.addresses[name]
		switch {
		case !remains && (listed && known || n.How != ""):
			n.How = removed
		case n.How == "" && n.ControlPlane && is.controlPlanes != nil && !is.isControlPlane(name):
			n.How = demoted
		}
		if n.ControlPlane {
			e.Of++
		}
		switch {
		case n.How != "":
			e.Lost = append(e.Lost, n)
			needsForce = needsForce || n.How != replaced
		case n.ControlPlane && fate.begun:
			n.How = fate.how
			e.Begun = append(e.Begun, n)
		case n.ControlPlane:
			stays = append(stays, n.Address)
		}
	}
	if e.Never = e.endsEtcd(ctx, string(access.Talosconfig), stays); e.Never || needsForce && !force {
		return e
	}
	return nil
}

// answerTime bounds the question to etcd.
const answerTime = 10 * time.Second

// controlPlanes returns how many control planes the plan destroys, and the addresses of these and of those
// that are gone.
func (e *NodeError) controlPlanes() (destroyed int, lost []string) {
	for _, n := range slices.Concat(e.Lost, e.Begun) {
		if n.ControlPlane {
			lost = append(lost, n.Address)
			if n.How != gone {
				destroyed++
			}
		}
	}
	return destroyed, lost
}

// endsEtcd reports whether a plan destroys a control plane and leaves etcd without two at once, or without
// the last one. Those that have left etcd do not count. What an earlier run began counts, too: that run may
// have destroyed the machine.
func (e *NodeError) endsEtcd(ctx context.Context, talosconfig string, stays []string) bool {
	destroyed, lost := e.controlPlanes()
	if len(stays) == 0 { // the rest of what an earlier run began was permitted then
		return slices.ContainsFunc(e.Lost, func(n LostNode) bool { return n.ControlPlane })
	}
	if destroyed == 0 || len(lost) < 2 {
		return false
	}
	asking, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	members, err := talos.EtcdMembers(asking, []byte(talosconfig), stays)
	in := func(address string) bool { return slices.Contains(members, address) }
	if err != nil || slices.ContainsFunc(stays, func(a string) bool { return !in(a) }) {
		return true // its members have other addresses, or it does not answer
	}
	return len(slices.DeleteFunc(lost, func(a string) bool { return !in(a) })) > 1
}

// accessOf returns the access that the states of the platform's stages have. Without a kubeconfig no cluster
// runs.
func accessOf(r *run.Run) (access gate.Target, err error) {
	for _, s := range r.Cluster.Config.Stages {
		if s.Layer != cluster.PlatformLayer {
			continue
		}
		st, err := r.ReadState(r.Cluster.Dir.Stage(s.Name))
		if err != nil {
			return gate.Target{}, err
		}
		if kubeconfig, has := st.Outputs[cluster.KubeconfigOutput]; has {
			access.Kubeconfig = []byte(text(kubeconfig))
		}
		if talosconfig, has := st.Outputs[cluster.TalosconfigOutput]; has {
			access.Talosconfig = []byte(text(talosconfig))
		}
	}
	return access, nil
}

// nodes are those of a stage's outputs.
type nodes struct {
	listed        bool              // an output has them
	addresses     map[string]string // by name
	controlPlanes []string          // their addresses; nil if they are not known
}

func newNodes(outputs map[string]state.Output) nodes {
	n := nodes{addresses: map[string]string{}}
	n.controlPlanes = talos.Endpoints([]byte(text(outputs[cluster.TalosconfigOutput])))
	_, n.listed = outputs["node_addresses"]
	for name, address := range tfeval.Map(outputs["node_addresses"].Value) {
		n.addresses[name] = tfeval.Text(address)
	}
	for name, m := range tfeval.Map(outputs[cluster.MachinesOutput].Value) {
		n.listed, n.addresses[name] = true, tfeval.Text(tfeval.Attribute(m, "address"))
		if tfeval.Text(tfeval.Attribute(m, "role")) == "controlplane" {
			n.controlPlanes = append(n.controlPlanes, n.addresses[name])
		}
	}
	return n
}

func (n nodes) isControlPlane(name string) bool {
	return n.controlPlanes == nil || slices.Contains(n.controlPlanes, n.addresses[name])
}

func text(o state.Output) string { return tfeval.Text(o.Value) }

// fate is what becomes of a machine.
type fate struct {
	how   string // removed, replaced or gone
	begun bool   // by an earlier run
}

// machineFates tells by node what becomes of its machine: a virtual machine that is replaced or deleted, or
// one that is reset because its configuration is. One that the plan creates or configures is gone, because
// the outputs have its node. The key of the resource is the node's name.
func machineFates(changes []terraform.Change, before *state.State, intent *state.Intent) map[string]fate {
	all := map[string]fate{}
	losses := Losses(changes, before, intent)
	for _, c := range destructions(changes, before) {
		at := slices.IndexFunc(before.Resources, func(res state.Resource) bool {
			return res.Address == c.Address && !res.Deposed
		})
		name, keyed := terraform.KeyOf(c.Address)
		if at < 0 || !keyed {
			continue
		}
		res := before.Resources[at]
		onDestroy, _ := res.Attributes["on_destroy"].(map[string]any)
		if cluster.Platforms().IsMachine(res.Type) || onDestroy["reset"] == true {
			how := map[string]string{"replace": replaced, "delete": removed}[c.Action]
			all[name] = fate{how: how, begun: !slices.Contains(losses, c)}
		}
	}
	for _, c := range changes {
		name, keyed := terraform.KeyOf(c.Address)
		if c.Action != "create" || !keyed {
			continue
		}
		_, destroyed := all[name]
		if cluster.Platforms().IsMachine(c.Type) || c.Type == "talos_machine_configuration_apply" &&
			!destroyed {
			all[name] = fate{how: gone, begun: true}
		}
	}
	return all
}
