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

// Reachable is the gate kubernetes_api of a kubeconfig's cluster.
func Reachable(kubeconfig []byte) gate.Gate { return gates.Reachable(kubeconfig) }

// Survey explains a whole cluster, where only a failure inside of it is known.
func Survey(ctx context.Context, target gate.Target) gate.Diagnosis {
	return diagnose.Cluster(ctx, target)
}

// ClusterIdentity identifies the cluster of a kubeconfig by its CA.
func ClusterIdentity(kubeconfig []byte) (string, error) { return client.ClusterIdentity(kubeconfig) }
