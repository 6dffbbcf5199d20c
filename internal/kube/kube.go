// Package kube is castle's way to Kubernetes. It wires three packages: client connects and reads, gates
// checks, diagnose explains the findings of a check. Imports point down in this order: kube, diagnose,
// gates, client.
package kube

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/diagnose"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// PendingRelease is an unfinished revision of a Helm release.
type PendingRelease = client.PendingRelease

// GateTypes lists the gates that Kubernetes answers, each with its Diagnose.
func GateTypes() []gate.Type {
	types := gates.Types()
	for i, t := range types {
		types[i].New = func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			g, err := t.New(name, target, v)
			g.Diagnose = diagnose.Gate(t.Name, target, v)
			return g, err
		}
	}
	return types
}

// ExistsTypes lists the exists blocks that Kubernetes answers.
func ExistsTypes() []gate.ExistsType { return gates.ExistsTypes() }

// Reachable is the gate kubernetes_api of a kubeconfig's cluster.
func Reachable(kubeconfig []byte) gate.Gate { return gates.Reachable(kubeconfig) }

// Survey explains a whole cluster, where only a failure inside of it is known.
func Survey(ctx context.Context, target gate.Target) gate.Diagnosis {
	return diagnose.Cluster(ctx, target)
}

// ClusterIdentity identifies the cluster of a kubeconfig by its CA.
func ClusterIdentity(kubeconfig []byte) (string, error) { return client.ClusterIdentity(kubeconfig) }

// Exists reports whether an object of a built-in kind exists.
func Exists(ctx context.Context, target gate.Target, kind, namespace, name string) (bool, error) {
	return client.Exists(ctx, target, kind, namespace, name)
}

// ReleaseExists reports whether Helm has any revision of a release.
func ReleaseExists(ctx context.Context, target gate.Target, namespace, name string) (bool, error) {
	return client.ReleaseExists(ctx, target, namespace, name)
}

// PendingReleases lists the unfinished revisions of all namespaces.
func PendingReleases(ctx context.Context, target gate.Target) ([]PendingRelease, error) {
	return client.PendingReleases(ctx, target)
}

// RemovePendingRelease deletes an unfinished revision, unless it has changed since it was listed.
func RemovePendingRelease(ctx context.Context, target gate.Target, r PendingRelease) (bool, error) {
	return client.RemovePendingRelease(ctx, target, r)
}
