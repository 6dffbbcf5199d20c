package kube

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
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
