// Package fault names what `castle rehearse --fault NAME=VALUE` can make go
// wrong. castle tells of it in its help; the lab injects it.
//
// A fault that lasts a DURATION begins when the thing that it disturbs would be
// fine without it, and is over once and for all when the time has passed. What
// happens once is over at once, or when the lab has recovered from it. The lab's
// log says so, with these words and no others: "fault NAME: begins" and "fault
// NAME: ends".
package fault

import (
	"fmt"
	"strings"
)

// What a fault's value is.
const (
	Duration = "DURATION" // 30s, 1m30s
	ID       = "ID"       // a VM's
	Yes      = "1"
)

// Fault is one that can be injected.
type Fault struct {
	Name, Value string
	Summary     string
}

// All are the faults that there are, in the order in which a cluster would meet them.
func All() []Fault {
	return []Fault{
		{"ghost-vm", ID, "a VM with that id runs and is somebody else's"},
		{"infisical-secret-exists", Yes, "an earlier cluster has left its kubeconfig in Infisical"},
		{"etcd-learner", Duration, "the last member of etcd stays a learner that long"},
		{"vip-moves", Duration, "the virtual address moves to another control plane, once, that long after it was first held"},
		{"api-restarts", Duration, "the Kubernetes API is killed and comes back, once, that long after it first answered"},
		{"crd-absent", Duration, "MetalLB is deployed, and its CRDs come that much later"},
		{"daemonset-no-node", Duration, "no node carries the label that metallb-speaker selects"},
		{"webhook-late", Duration, "MetalLB's webhook listens that much later than it could"},
		{"webhook-refuses", Duration, "MetalLB's webhook listens, but one of its handlers answers 404"},
		{"cabundle-empty", Duration, "the second of External Secrets' webhook configurations has no caBundle"},
		{"ca-expired", Duration, "Longhorn's webhook serves under an authority that has expired"},
		{"conditions-none", Duration, "the ClusterSecretStore has no status"},
		{"kustomization-frozen", Yes, "a Kustomization stays DependencyNotReady behind a ready dependency until a reconcile is requested"},
	}
}

// String is how a fault is asked for: webhook-late=DURATION.
func (f Fault) String() string { return f.Name + "=" + f.Value }

// Usage explains every fault on a line of its own.
func Usage() string {
	var b strings.Builder
	for _, f := range All() {
		fmt.Fprintf(&b, "  %-26s %s\n", f, f.Summary)
	}
	return b.String()
}
