package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// nodes counts. More nodes than asked for are welcome, but every one that is
// registered has to be ready: one that is not is an old one come back, or a
// part of this cluster that died.
func nodes() gate.Type {
	return gate.Type{
		Name:       "nodes",
		Summary:    "at least count nodes are registered and every one is ready",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"count": {Type: cty.Number, Required: true, Valid: gate.ValidCount, Help: "how many nodes there have to be"},
			"ready": {Type: cty.Bool, Help: "false asks only that they are registered, for a cluster whose network comes later; default true"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			c, all := newCluster(target, ""), selection{in: corev1.SchemeGroupVersion.WithResource("nodes")}
			count, judge := v.Int("count"), !v.Has("ready") || v.Bool("ready")
			check := c.ask(func(ctx context.Context, a *api) error {
				found, err := a.nodes(ctx, "")
				if err != nil {
					return err
				}
				return judgeNodes(found, count, judge)
			})
			return gate.Gate{Name: name, Check: check, Changed: c.changes(always(all))}, nil
		},
	}
}

// nodes lists the nodes that a label selector picks, by name.
func (a *api) nodes(ctx context.Context, selector string) ([]corev1.Node, error) {
	items, err := a.list(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", selector)
	if err != nil {
		return nil, err
	}
	var found []corev1.Node
	for _, item := range items {
		node, err := as[corev1.Node](item)
		if err != nil {
			return nil, err
		}
		found = append(found, node)
	}
	slices.SortFunc(found, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

func judgeNodes(found []corev1.Node, count int, ready bool) error {
	var names, unready []string
	for _, node := range found {
		names = append(names, node.Name)
		if why := nodeUnready(node); why != "" {
			unready = append(unready, fmt.Sprintf("%s (%s)", node.Name, why))
		}
	}
	switch {
	case len(found) == 0:
		return fmt.Errorf("0 of %d nodes registered", count)
	case len(found) < count:
		return fmt.Errorf("%d of %d nodes registered: only %s", len(found), count, strings.Join(names, ", "))
	case ready && len(unready) > 0:
		return fmt.Errorf("%d of %d nodes not ready: %s", len(unready), len(found), several(unready))
	}
	return nil
}

// nodeUnready says why a node takes no pods yet; empty if it does. A node that
// was cordoned by hand is ready. Whether it has a podCIDR says nothing: many
// networks hand out addresses of their own.
func nodeUnready(node corev1.Node) string {
	var ready *corev1.NodeCondition
	network := false
	for i, c := range node.Status.Conditions {
		switch c.Type {
		case corev1.NodeNetworkUnavailable:
			network = network || c.Status == corev1.ConditionTrue
		case corev1.NodeReady:
			ready = &node.Status.Conditions[i]
		}
	}
	for _, taint := range node.Spec.Taints {
		network = network || taint.Key == corev1.TaintNodeNetworkUnavailable
	}
	switch {
	case ready == nil:
		return "says nothing about itself yet"
	case ready.Status == corev1.ConditionFalse && blamesNetwork(ready.Message):
		return "no network yet: " + brief(ready.Message)
	case ready.Status != corev1.ConditionTrue:
		return cmp.Or(state{Reason: ready.Reason, Message: ready.Message}.why(), "not ready")
	case network:
		return "network unavailable"
	}
	return ""
}

// blamesNetwork recognises what the kubelet says while the container runtime
// has no network plugin that works.
func blamesNetwork(message string) bool {
	return strings.Contains(message, "NetworkPluginNotReady") || strings.Contains(message, "cni plugin not initialized")
}
