// Package cilium does in the lab the work of Cilium's operator and agents, as far as it shows in the API.
//
// The operator creates the custom resource definitions, which the chart does not hold. Agents wait for
// these, so their Pods wait for the operator here, too. The operator taints a node whose agent is not ready
// yet, and removes the taint again. It gives Services of type LoadBalancer their addresses; an agent holds
// the lease of each Service that it announces, or has a session with each router that the BGP control plane
// names. Sources: operator/watchers/node_taint.go, operator/pkg/lbipam and pkg/l2announcer of Cilium 1.18.
//
// No packet flows: the datapath, and with it the way to a Service, is not part of the lab.
package cilium

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// Waits is the annotation of a Pod that does not get ready before somebody removes it.
const Waits = "lab.castle/waits"

// notReadyTaint keeps Pods from nodes without an agent.
const notReadyTaint = "node.cilium.io/agent-not-ready"

// Machines are what Talos offers to Pods on the host's network.
type Machines struct {
	KubePrism int  // the port of its load balancer for the API; 0: it is off
	KubeProxy bool // the Service kubernetes works without Cilium
}

// Cilium is the operator and all agents.
type Cilium struct {
	w        *cluster.View
	machines Machines
	defined  bool // the kinds are established since this operator started
}

// New returns a Cilium for a cluster on these machines.
func New(w *cluster.View, m Machines) *Cilium { return &Cilium{w: w, machines: m} }

// Close ends nothing.
func (c *Cilium) Close() {}

// Look takes the next steps that are due. In the mode kubernetes, an agent waits for its node's range of
// addresses.
func (c *Cilium) Look(ctx context.Context) error {
	pods, err := c.w.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/part-of=cilium", ResourceVersion: "0"})
	if err != nil || len(pods.Items) == 0 {
		return err
	}
	agents, operators := split(pods.Items)
	err = c.release(ctx, operators)
	if !slices.ContainsFunc(operators, ready) {
		c.w.Restart("cilium kinds")
		c.defined = false
		return err
	}
	nodes, listing := c.w.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if listing != nil {
		return errors.Join(err, listing)
	}
	err = errors.Join(err, c.mark(ctx, nodes.Items, agents), c.define(ctx))
	if !c.defined {
		return err
	}
	mode, reading := c.config(ctx, "ipam")
	able := slices.DeleteFunc(slices.Clone(agents), func(p corev1.Pod) bool {
		return mode == "kubernetes" && !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
			return n.Name == p.Spec.NodeName && n.Spec.PodCIDR != ""
		})
	})
	return errors.Join(err, reading, c.release(ctx, able), c.allocate(ctx),
		c.announce(ctx, nodes.Items, agents), c.speaks(ctx, nodes.Items, agents))
}

// split returns the agents and the operators among Cilium's Pods.
func split(pods []corev1.Pod) (agents, operators []corev1.Pod) {
	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil:
		case p.Labels["k8s-app"] == "cilium":
			agents = append(agents, p)
		case p.Labels["io.cilium/app"] == "operator":
			operators = append(operators, p)
		}
	}
	return agents, operators
}

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// release lets Pods start that reach the API.
func (c *Cilium) release(ctx context.Context, pods []corev1.Pod) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, Waits)
	var errs []error
	for _, p := range pods {
		if p.Annotations[Waits] == "" || p.Spec.NodeName == "" || !c.reaches(p) {
			continue
		}
		_, err := c.w.Typed.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType,
			patch, metav1.PatchOptions{})
		errs = append(errs, cluster.Unless(err, apierrors.IsNotFound))
	}
	return errors.Join(errs...)
}

// reaches reports whether a Pod on the host's network reaches the API: through KubePrism, at an address of
// its own, or through the Service kubernetes, which nobody but kube-proxy serves before Cilium runs.
func (c *Cilium) reaches(p corev1.Pod) bool {
	host, port := "", ""
	for _, e := range p.Spec.Containers[0].Env {
		switch e.Name {
		case "KUBERNETES_SERVICE_HOST":
			host = e.Value
		case "KUBERNETES_SERVICE_PORT":
			port = e.Value
		}
	}
	switch host {
	case "":
		return c.machines.KubeProxy
	case "localhost", "127.0.0.1":
		return c.machines.KubePrism != 0 && port == fmt.Sprint(c.machines.KubePrism)
	}
	return true
}

// mark taints the nodes whose agent is scheduled and not ready, and frees the others.
func (c *Cilium) mark(ctx context.Context, nodes []corev1.Node, agents []corev1.Pod) error {
	var errs []error
	for _, n := range nodes {
		on := slices.DeleteFunc(slices.Clone(agents),
			func(p corev1.Pod) bool { return p.Spec.NodeName != n.Name })
		running := slices.ContainsFunc(on, ready)
		tainted := slices.ContainsFunc(n.Spec.Taints, isNotReady)
		switch {
		case len(on) == 0:
		case running && tainted:
			n.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), isNotReady)
			errs = append(errs, c.update(ctx, n))
		case running && !isUp(n):
			errs = append(errs, c.setUp(ctx, n.Name))
		case !running && !tainted:
			n.Spec.Taints = append(slices.Clone(n.Spec.Taints), corev1.Taint{Key: notReadyTaint,
				Effect: corev1.TaintEffectNoSchedule})
			errs = append(errs, c.update(ctx, n))
		}
	}
	return errors.Join(errs...)
}

func isNotReady(t corev1.Taint) bool { return t.Key == notReadyTaint }

// isUp reports whether the operator has noted that the node has a network.
func isUp(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse &&
			c.Reason == "CiliumIsUp"
	})
}

// update writes a node; a conflict is seen again by the next look.
func (c *Cilium) update(ctx context.Context, n corev1.Node) error {
	_, err := c.w.Typed.CoreV1().Nodes().Update(ctx, &n, metav1.UpdateOptions{})
	return cluster.Unless(cluster.Unless(err, apierrors.IsConflict), apierrors.IsNotFound)
}

// setUp notes that the node has a network.
func (c *Cilium) setUp(ctx context.Context, node string) error {
	now := c.w.Now().UTC().Format(time.RFC3339)
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False",`+
		`"reason":"CiliumIsUp","message":"Cilium is running on this node","lastTransitionTime":%[1]q,`+
		`"lastHeartbeatTime":%[1]q}]}}`, now)
	_, err := c.w.Typed.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return cluster.Unless(err, apierrors.IsNotFound)
}
