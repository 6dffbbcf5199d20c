package gates

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// nodes counts nodes. More than wanted are welcome, but every registered one has to be ready: an unready one
// is an old node that came back, or has died.
func nodes() definition {
	return definition{gate.Type{
		Name:    "nodes",
		Summary: "at least count nodes are registered and every one is ready",
		Attributes: map[string]gate.Attribute{
			"count": {Type: cty.Number, Required: true, Valid: gate.ValidCount,
				Help: "how many nodes have to be registered"},
			"ready": {Type: cty.Bool,
				Help: "false only requires that they are registered, for a cluster whose network comes " +
					"later; default true"},
		},
	}, func(v gate.Values) (Checker, error) {
		return nodeCount{v.Int("count"), !v.Has("ready") || v.Bool("ready")}, nil
	}}
}

// nodeCount is a nodes gate's arguments.
type nodeCount struct {
	count int
	ready bool
}

func (n nodeCount) Selections(context.Context, *client.API) ([]client.Selection, error) {
	return []client.Selection{{Resource: client.Core("nodes")}}, nil
}

func (n nodeCount) Check(ctx context.Context, a *client.API) error {
	found, err := listNodes(ctx, a, "")
	if err != nil {
		return err
	}
	var names, unready []string
	for _, node := range found {
		names = append(names, node.Name)
		if why := NodeUnready(node); why != "" {
			unready = append(unready, fmt.Sprintf("%s (%s)", node.Name, why))
		}
	}
	switch {
	case len(found) == 0:
		return problem(NodesMissing, "", "0 of %d nodes registered", n.count)
	case len(found) < n.count:
		return problem(NodesMissing, "", "%d of %d nodes registered: only %s",
			len(found), n.count, strings.Join(names, ", "))
	case n.ready && len(unready) > 0:
		return fmt.Errorf("%d of %d nodes not ready: %s", len(unready), len(found), client.Several(unready))
	}
	return nil
}

// listNodes lists the nodes that a label selector selects, by name.
func listNodes(ctx context.Context, a *client.API, selector string) ([]corev1.Node, error) {
	found, err := client.ListAs[corev1.Node](ctx, a,
		client.Selection{Resource: client.Core("nodes"), Labels: selector}, "Node")
	slices.SortFunc(found, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return found, err
}

// NodeUnready explains why a node takes no pods yet; empty if it does. A node that was cordoned by hand is
// ready. A podCIDR proves nothing: many networks hand out addresses of their own.
func NodeUnready(node corev1.Node) string {
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
		return "has no condition Ready yet"
	case ready.Status == corev1.ConditionFalse && lacksNetwork(ready.Message):
		return "no network yet: " + client.Brief(ready.Message)
	case ready.Status != corev1.ConditionTrue:
		return cmp.Or(client.Condition{Reason: ready.Reason, Message: ready.Message}.Why(), "not ready")
	case network:
		return "network unavailable"
	}
	return ""
}

// lacksNetwork recognises the kubelet's message while the container runtime has no network plugin that
// works.
func lacksNetwork(message string) bool {
	return strings.Contains(message, "NetworkPluginNotReady") ||
		strings.Contains(message, "cni plugin not initialized")
}
