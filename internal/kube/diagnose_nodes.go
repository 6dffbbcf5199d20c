package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// nodes reads the nodes and keeps them, with a table of their conditions and taints.
func (q *inquiry) nodes(ctx context.Context) []corev1.Node {
	if q.machines != nil {
		return q.machines
	}
	items := q.list(ctx, selection{in: corev1.SchemeGroupVersion.WithResource("nodes")}, "Node")
	for _, item := range items {
		if node, err := as[corev1.Node](item); err == nil {
			q.machines = append(q.machines, node)
		}
	}
	q.keep("nodes.txt", nodeTable(q.machines))
	return q.machines
}

func nodeTable(nodes []corev1.Node) []byte {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, node := range nodes {
		for _, c := range node.Status.Conditions {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", node.Name, c.Type, c.Status, c.Reason, brief(c.Message))
		}
		for _, taint := range node.Spec.Taints {
			fmt.Fprintf(t, "%s\ttaint\t%s\t%s\t\n", node.Name, taint.Key, taint.Effect)
		}
	}
	t.Flush() //nolint:errcheck // a Builder takes everything
	return []byte(b.String())
}

// population explains why nodes are missing or not ready.
func (q *inquiry) population(ctx context.Context, v gate.Values) {
	count := v.Int("count")
	nodes := q.nodes(ctx)
	q.events(ctx, "default") // where the events about nodes are
	for _, node := range nodes {
		why := nodeUnready(node)
		if why == "" {
			continue
		}
		if at := nodeCauses(why); at != "" {
			if strings.Contains(at, "network") {
				// A network plugin is a DaemonSet; what else is there waits for it.
				q.somePods(ctx, "kube-system", "", ofDaemonSet)
			}
			q.because(fmt.Sprintf("node %s: %s", node.Name, at), describe("Node", "", node.Name))
		}
		q.because(fmt.Sprintf("node %s says of itself: %s", node.Name, why), describe("Node", "", node.Name))
	}
	if len(nodes) < count {
		q.because(fmt.Sprintf("%d of %d machines have not joined: they do not run, they do not reach the API, or Talos on them waits for its configuration", count-len(nodes), count))
	}
}

func ofDaemonSet(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
}

// nodeCauses reads why a node is not ready.
func nodeCauses(why string) string {
	for _, c := range []struct{ sign, cause string }{
		{"cni plugin not initialized", "its network plugin (CNI) has not written its configuration: the plugin's Pod does not run there yet"},
		{"NetworkPluginNotReady", "its network plugin (CNI) is not ready"},
		{"network unavailable", "its network is not set up: the network plugin (CNI) has not reported it"},
		{"Kubelet stopped posting node status", "its kubelet has gone silent: the machine is off, cut off or out of memory"},
		{"container runtime is down", "its container runtime does not answer"},
		{"PLEG is not healthy", "its container runtime does not answer in time"},
		{"says nothing about itself", "its kubelet has registered it and reported nothing since"},
	} {
		if strings.Contains(why, c.sign) {
			return c.cause
		}
	}
	return ""
}
