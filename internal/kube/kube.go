// Package kube asks Kubernetes whether something is really ready. It is the
// only user of client-go.
//
// Each gate type has a file of its own and a line in GateTypes. A type's check
// is one attempt against the API: it reads what it needs, judges it with what
// the objects themselves say, and answers in words for a person. Three rules
// hold for all of them and live in cluster.go and explain.go, so that a type
// need not think of them:
//
//   - An attempt has a bound of its own, so that an API that hangs costs one
//     attempt and not the whole wait.
//   - What can still come (a refused connection, an object, a kind that no
//     CRD serves yet) is waited for. What cannot (a certificate of another
//     cluster, a user without rights) is permanent.
//   - The cluster is reached with its kubeconfig alone. Neither the environment
//     nor a pod's service account can lead a gate to another cluster.
//
// A passing moment proves little: absence of a status is never read as success,
// which is where these checks are stricter than kstatus.
//
// One thing it does more than ask: it finds and removes what a killed Helm has
// left unfinished, for whoever knows that it was killed.
package kube

import "github.com/ephemeral-castle/castle/internal/gate"

// GateTypes lists the gates that Kubernetes can answer.
func GateTypes() []gate.Type {
	return explained([]gate.Type{
		kubernetesAPI(),
		nodes(),
		endpointSlice(),
		webhook(),
		workload(),
		crd(),
		condition(),
		storageClass(),
		loadBalancer(),
		flux(),
	})
}
