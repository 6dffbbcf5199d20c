package kube

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// LastReplicas lists Longhorn's volumes whose only intact replicas are on a node, by the node's name. A
// replica is intact once it was healthy and as long as it has not failed
// (longhorn-manager, types.IsReplicaHealthy). A cluster without Longhorn has none.
func LastReplicas(ctx context.Context, target gate.Target) (volumes map[string][]string, err error) {
	nodes := map[string][]string{} // of each volume
	err = client.Do(ctx, target, func(ctx context.Context, a *client.API) error {
		in, err := a.ResolveIn(ctx, "longhorn.io", "Replica")
		if client.IsNotServed(err) {
			return nil
		}
		if err != nil {
			return err
		}
		replicas, err := a.List(ctx, client.Selection{Resource: in.GroupVersionResource}, "Replica")
		for _, r := range replicas {
			spec, _, _ := unstructured.NestedMap(r.Object, "spec") //nolint:errcheck // then it has none
			text := func(field string) string { value, _ := spec[field].(string); return value }
			volume, node := text("volumeName"), text("nodeID")
			if text("healthyAt") != "" && text("failedAt") == "" && !slices.Contains(nodes[volume], node) {
				nodes[volume] = append(nodes[volume], node)
			}
		}
		return err
	})
	volumes = map[string][]string{}
	for volume, on := range nodes {
		if len(on) == 1 {
			volumes[on[0]] = append(volumes[on[0]], volume)
			slices.Sort(volumes[on[0]])
		}
	}
	return volumes, err
}
