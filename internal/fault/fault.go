// Package fault names the faults of `castle rehearse --fault NAME=VALUE`. castle lists them in its help; the
// lab injects them. A fault with a DURATION begins when its object would otherwise be ready, and ends for
// good after that time. Any other fault ends at once, or when the lab has recovered from it. The lab logs
// exactly "fault NAME: begins" and "fault NAME: ends".
package fault

import (
	"fmt"
	"strings"
)

// The kinds of a fault's value.
const (
	Duration = "DURATION" // 30s, 1m30s
	ID       = "ID"       // a VM's
	Node     = "NODE"     // a node's name, with or without the prefix of the cluster: worker-01
	Yes      = "1"
)

// Fault is a fault that the lab can inject.
type Fault struct {
	Name, Value, Summary string
}

// All lists the faults in the order in which a cluster meets them.
func All() []Fault {
	return []Fault{
		{"ghost-vm", ID, "a foreign VM with that id runs"},
		{"infisical-secret-exists", Yes, "Infisical holds the kubeconfig of an earlier cluster"},
		{"rate-limited", Duration, "Hetzner Cloud refuses all requests that long, from the first one on"},
		{"placement-full", Yes, "no host has room for the first server of a placement group, once"},
		{"action-slow", Duration, "the creation of a server takes that much longer"},
		{"action-fails", Yes, "the creation of a control plane fails after its request was accepted, once"},
		{"server-locked", Duration, "Hetzner Cloud locks a server that long when it is first to be deleted"},
		{"etcd-learner", Duration, "the last member of etcd stays a learner that long"},
		{"vip-moves", Duration,
			"the virtual address moves to another control plane, once, that long after its assignment"},
		{"api-restarts", Duration,
			"the Kubernetes API is killed and restarts, once, that long after it first answered"},
		{"crd-absent", Duration, "MetalLB is deployed, and its CRDs follow that much later"},
		{"daemonset-no-node", Duration, "no node has the label that metallb-speaker selects"},
		{"webhook-late", Duration, "MetalLB's webhook listens that much later than it could"},
		{"webhook-refuses", Duration, "MetalLB's webhook listens, but one of its handlers answers 404"},
		{"cabundle-empty", Duration, "External Secrets' second webhook configuration has no caBundle"},
		{"ca-expired", Duration, "Longhorn's webhook serves with an expired CA"},
		{"conditions-none", Duration, "the ClusterSecretStore has no status"},
		{"kustomization-frozen", Yes,
			"a Kustomization stays DependencyNotReady behind a ready dependency until a reconcile request"},
		{"replica-last", Node, "a Longhorn volume has its only replica on that node"},
		{"drain-blocked", Duration,
			"a PodDisruptionBudget of a worker's Pod allows nothing that long after the first refusal"},
		{"volume-degraded", Duration,
			"Longhorn rebuilds the replicas of a node that returned that much later"},
		{"upgrade-fails", Node, "the next Talos that is installed there fails at its first boot, once"},
		{"lease-moves", Node, "the DHCP server gives that machine another address after its VM has stopped"},
		{"node-dead", Node, "that node dies for good when a machine of the cluster next restarts or changes"},
		{"etcd-full", Yes, "etcd's database has 1.5 GiB until somebody defragments it"},
		{"snapshot-cut", Yes, "the first snapshot of etcd ends after half of it, without an error"},
		{"control-planes-lost", Yes,
			"the machines of all control planes lose their disks after the first snapshot of etcd"},
		{"s3-refuses", Duration, "the S3 server refuses everything that long after a first backup"},
		{"wal-behind", Duration, "after the first backup of a database, its WAL is archived that much later"},
		{"backup-incomplete", Yes, "the first requested backup of a database or volume lacks a part"},
		{"restore-slow", Duration, "the restore of a database takes that much longer"},
		{"password-diverged", Yes, "a user of a restored database has another password than its Secret"},
	}
}

// String is the argument for a fault: webhook-late=DURATION.
func (f Fault) String() string { return f.Name + "=" + f.Value }

// Usage explains every fault on a line of its own.
func Usage() string {
	var b strings.Builder
	for _, f := range All() {
		fmt.Fprintf(&b, "  %-26s %s\n", f, f.Summary)
	}
	return b.String()
}
