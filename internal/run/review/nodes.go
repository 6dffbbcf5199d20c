package review

import (
	"cmp"
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
	Lost    []LostNode
	rollout string // the command that takes one after the other
	again   string // the command that creates the cluster anew; empty if a control plane stays
}

// What a plan does to a node's machine.
const (
	removed = "removed"
	demoted = "demoted to a worker"
)

// LostNode is a node that a plan takes away.
type LostNode struct {
	Name, Address string // cp-02, 192.168.1.212
	How           string
	ControlPlane  bool
}

func (e *NodeError) Error() string {
	var b strings.Builder
	b.WriteString("it would take nodes out of a cluster that runs; nothing was changed:")
	for _, n := range e.Lost {
		role := "worker"
		if n.ControlPlane {
			role = "control plane"
		}
		fmt.Fprintf(&b, "\n  %s %s at %s: %s", role, n.Name, n.Address, n.How)
	}
	if e.again != "" {
		return b.String() + "\n  no control plane would be left; create the cluster anew: " + e.again
	}
	return b.String() + "\n  set the former values again, or take one after the other out of it: " + e.rollout
}

// checkNodes returns a *NodeError if a plan takes nodes out of a cluster that runs, but what an earlier run
// began. before is the stage's state. A replaced machine is a harm of its own.
func checkNodes(ctx context.Context, r *run.Run, before *state.State, intent *state.Intent,
	plan *terraform.Plan) error {
	was := newNodes(before.Outputs)
	if len(was.addresses) == 0 || plan.Empty {
		return nil
	}
	access, members, err := accessOf(r)
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
	e := &NodeError{rollout: r.Cluster.Command("rollout"), again: r.Cluster.Command("recreate")}
	deletes := deletedMachines(plan.Changes, before, intent)
	for _, name := range slices.Sorted(maps.Keys(was.addresses)) {
		n := LostNode{Name: name, Address: was.addresses[name], ControlPlane: was.isControlPlane(name)}
		_, remains := is.addresses[name]
		switch {
		case len(members) > 0 && !slices.Contains(members, name):
			continue // it has left the cluster
		case deletes[name], !remains && is.listed && known:
			n.How = removed
		case n.ControlPlane && is.controlPlanes != nil && !is.isControlPlane(name):
			n.How = demoted
		}
		switch {
		case n.How != "":
			e.Lost = append(e.Lost, n)
		case n.ControlPlane:
			e.again = ""
		}
	}
	if len(e.Lost) == 0 {
		return nil
	}
	isControlPlane := func(n LostNode) bool { return n.ControlPlane }
	if !slices.ContainsFunc(e.Lost, isControlPlane) {
		e.again = ""
	}
	return e
}

// deletedMachines tells which nodes' machines a plan deletes, or resets because it deletes their
// configuration. The key of the resource is the node's name.
func deletedMachines(changes []terraform.Change, before *state.State, intent *state.Intent) map[string]bool {
	all := map[string]bool{}
	for _, c := range Losses(changes, before, intent) {
		at := slices.IndexFunc(before.Resources, func(res state.Resource) bool {
			return res.Address == c.Address && !res.Deposed
		})
		name, keyed := terraform.KeyOf(c.Address)
		if at < 0 || !keyed || c.Action != "delete" {
			continue
		}
		res := before.Resources[at]
		onDestroy, _ := res.Attributes["on_destroy"].(map[string]any)
		all[name] = all[name] || cluster.Platforms().IsMachine(res.Type) || onDestroy["reset"] == true
	}
	return all
}

// answerTime bounds a question to a machine or to the cluster.
const answerTime = 10 * time.Second

// accessOf returns the access that the states of the platform's stages have. Without a kubeconfig no cluster
// runs. members are the machines that resources in these states stand for; none if no machine runs Talos.
func accessOf(r *run.Run) (access gate.Target, members []string, err error) {
	configures := false
	for _, s := range r.Cluster.Config.Stages {
		if s.Layer != cluster.PlatformLayer {
			continue
		}
		st, err := r.ReadState(r.Cluster.Dir.Stage(s.Name))
		if err != nil {
			return gate.Target{}, nil, err
		}
		for _, res := range st.Managed() {
			configures = configures || res.Type == ApplyType
			if name, keyed := terraform.KeyOf(res.Address); keyed && isJudged(res.Type) {
				members = append(members, name)
			}
		}
		if kubeconfig, has := st.Outputs[cluster.KubeconfigOutput]; has {
			access.Kubeconfig = []byte(text(kubeconfig))
		}
		if talosconfig, has := st.Outputs[cluster.TalosconfigOutput]; has {
			access.Talosconfig = []byte(text(talosconfig))
		}
	}
	if !configures {
		members = nil
	}
	return access, members, nil
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
		n.listed, n.addresses[name] = true, cmp.Or(tfeval.Text(tfeval.Attribute(m, "address")),
			tfeval.Text(tfeval.Attribute(tfeval.Map(outputs[cluster.LeasesOutput].Value)[name], "address")))
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
