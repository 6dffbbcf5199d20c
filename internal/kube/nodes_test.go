package kube

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

const (
	readyNode = `
kind: Node
status: {conditions: [{type: NetworkUnavailable, status: "False"}, {type: Ready, status: "True",
  reason: KubeletReady}]}`
	newNode = `
kind: Node
status: {conditions: [{type: Ready, status: "False", reason: KubeletNotReady,
  message: "container runtime network not ready: NetworkReady=false
  reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"}]}`
	slowNode = `
kind: Node
status: {conditions: [{type: Ready, status: "False", reason: KubeletNotReady,
  message: "[PLEG is not healthy: pleg has yet to be successful]"},
  {type: NetworkUnavailable, status: "False"}]}`
	deadNode = `
kind: Node
status: {conditions: [{type: Ready, status: Unknown, reason: NodeStatusUnknown,
  message: Kubelet stopped posting node status.}]}`
	taintedNode = `
kind: Node
spec: {taints: [{key: node.kubernetes.io/network-unavailable, effect: NoSchedule}]}
status: {conditions: [{type: Ready, status: "True"}]}`
	unroutedNode = `
kind: Node
status: {conditions: [{type: Ready, status: "True"}, {type: NetworkUnavailable, status: "True",
  reason: NoRouteCreated}]}`
	cordonedNode = `
kind: Node
spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}
status: {conditions: [{type: Ready, status: "True"}]}`
	uncoveredNode = `
kind: Node
spec: {taints: [{key: node.cilium.io/agent-not-ready, effect: NoSchedule}]}
status: {conditions: [{type: Ready, status: "True"}]}`
	goingNode = `
kind: Node
metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [example.org/slow]}
status: {conditions: [{type: Ready, status: "True"}]}`
	labelledWorker = `
kind: Node
metadata: {labels: {topology.kubernetes.io/zone: rack-1}}
spec: {taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]}
status: {conditions: [{type: Ready, status: "True"}]}`
	labelledControlPlane = `
kind: Node
metadata: {labels: {node-role.kubernetes.io/control-plane: ""}}
spec: {taints: [{key: example.org/only, effect: NoExecute}]}
status: {conditions: [{type: Ready, status: "True"}]}`
	silentNode = `
kind: Node
status: {}`
	cloudNode = `
kind: Node
spec: {providerID: "hcloud://1000001"}
status: {conditions: [{type: Ready, status: "True"}]}`
)

func metadata(node, key, value string) cty.Value {
	return cty.MapVal(map[string]cty.Value{node: cty.MapVal(map[string]cty.Value{key: str(value)})})
}

func TestNodes(t *testing.T) {
	cp, worker := "/api/v1/nodes/blue-cp-01", "/api/v1/nodes/blue-w-01"
	two := map[string]cty.Value{"count": num(2)}
	named := map[string]cty.Value{"names": cty.ListVal([]cty.Value{str("blue-cp-01"), str("blue-w-01")})}
	described := map[string]cty.Value{"count": num(2),
		"labels": metadata("blue-w-01", "topology.kubernetes.io/zone", "rack-1"),
		"taints": cty.MapVal(map[string]cty.Value{
			"blue-cp-01": cty.MapVal(map[string]cty.Value{"example.org/only": str("NoExecute")}),
			"blue-w-01":  cty.MapVal(map[string]cty.Value{"nvidia.com/gpu": str("present:NoSchedule")}),
		})}
	runTrials(t, "nodes", []trial{
		{name: "all ready", arguments: two, objects: []fixture{{cp, readyNode}, {worker, readyNode}}},
		{name: "more than asked for", arguments: map[string]cty.Value{"count": num(1)},
			objects: []fixture{{cp, readyNode}, {worker, readyNode}}},
		{name: "cordoned by hand", arguments: two,
			objects: []fixture{{cp, readyNode}, {worker, cordonedNode}}},
		{name: "none", arguments: two, want: "0 of 2 nodes registered"},
		{name: "one missing", arguments: two, objects: []fixture{{cp, readyNode}},
			want: "1 of 2 nodes registered: only blue-cp-01"},
		{
			name: "one not ready", arguments: two, objects: []fixture{{cp, readyNode}, {worker, slowNode}},
			want: "1 of 2 nodes not ready: blue-w-01 (KubeletNotReady: [PLEG is not healthy: pleg has yet " +
				"to be successful])",
		},
		{
			name: "one without a network plugin", arguments: two,
			objects: []fixture{{cp, readyNode}, {worker, newNode}},
			want: "1 of 2 nodes not ready: blue-w-01 (no network yet: KubeletNotReady: container " +
				"runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:" +
				"Network plugin returns error: cni plugin not initialized)",
		},
		{
			name: "an old one come back", arguments: map[string]cty.Value{"count": num(1)},
			objects: []fixture{{cp, readyNode}, {worker, deadNode}},
			want: "1 of 2 nodes not ready: blue-w-01 (NodeStatusUnknown: Kubelet stopped posting node " +
				"status.)",
		},
		{name: "exactly those", arguments: named, objects: []fixture{{cp, readyNode}, {worker, readyNode}}},
		{name: "a named one is missing", arguments: named, objects: []fixture{{cp, readyNode}},
			want: "1 of 2 nodes registered: blue-w-01 missing"},
		{
			name: "one of a machine that was removed", arguments: named,
			objects: []fixture{{cp, readyNode}, {worker, readyNode}, {"/api/v1/nodes/blue-w-02", readyNode}},
			want: "blue-w-02 not in the configuration; once its machine is gone: kubectl delete node " +
				"blue-w-02", permanent: true,
		},
		{
			name: "a renamed one", arguments: named,
			objects: []fixture{{cp, readyNode}, {"/api/v1/nodes/blue-w-02", readyNode}},
			want: "blue-w-02 not in the configuration; once its machine is gone: kubectl delete node " +
				"blue-w-02", permanent: true,
		},
		{
			name: "a removed one that is being deleted", arguments: named,
			objects: []fixture{{cp, readyNode}, {worker, readyNode}, {"/api/v1/nodes/blue-w-02", goingNode}},
			want:    "1 of 3 nodes not ready: blue-w-02 (is being deleted)",
		},
		{
			name: "one that is being deleted", arguments: two,
			objects: []fixture{{cp, readyNode}, {worker, goingNode}},
			want:    "1 of 2 nodes not ready: blue-w-01 (is being deleted)",
		},
		{
			name: "without network", arguments: two,
			objects: []fixture{{cp, unroutedNode}, {worker, taintedNode}},
			want: "2 of 2 nodes not ready: blue-cp-01 (network unavailable); blue-w-01 (network " +
				"unavailable)",
		},
		{
			name: "not ready, and no word why", arguments: two, objects: []fixture{{cp, readyNode},
				{worker, `{kind: Node, status: {conditions: [{type: Ready, status: "False"}]}}`}},
			want: "1 of 2 nodes not ready: blue-w-01 (not ready)",
		},
		{name: "labelled and tainted", arguments: described,
			objects: []fixture{{cp, labelledControlPlane}, {worker, labelledWorker}}},
		{
			name: "a label that Kubernetes refuses", arguments: described,
			objects: []fixture{{cp, labelledControlPlane}, {worker, readyNode}},
			want:    `node blue-w-01: its label topology.kubernetes.io/zone is not "rack-1" yet`,
		},
		{
			name: "a label with another value", arguments: described,
			objects: []fixture{{cp, labelledControlPlane},
				{worker, strings.ReplaceAll(labelledWorker, "rack-1", "rack-2")}},
			want: `node blue-w-01: its label topology.kubernetes.io/zone is not "rack-1" yet`,
		},
		{
			name: "a taint of a worker that was registered without it", arguments: described,
			objects: []fixture{{cp, labelledControlPlane},
				{worker, strings.ReplaceAll(labelledWorker, "present", "absent")}},
			want: "node blue-w-01: has no taint nvidia.com/gpu=present:NoSchedule, and a worker gets its " +
				"taints only when it registers: kubectl taint node blue-w-01 " +
				"nvidia.com/gpu=present:NoSchedule --overwrite", permanent: true,
		},
		{
			name: "a taint that Talos will set", arguments: described,
			objects: []fixture{{cp, strings.ReplaceAll(labelledControlPlane, "NoExecute", "NoSchedule")},
				{worker, labelledWorker}},
			want: "node blue-cp-01: has no taint example.org/only:NoExecute yet",
		},
		{
			name: "says nothing", arguments: two, objects: []fixture{{cp, readyNode}, {worker, silentNode}},
			want: "1 of 2 nodes not ready: blue-w-01 (has no condition Ready yet)",
		},
		{
			name: "with a taint that none may have", arguments: map[string]cty.Value{"count": num(2),
				"untainted": cty.ListVal([]cty.Value{str("node.cilium.io/agent-not-ready")})},
			objects: []fixture{{cp, uncoveredNode}, {worker, cordonedNode}},
			want:    "1 of 2 nodes not ready: blue-cp-01 (has the taint node.cilium.io/agent-not-ready)",
		},
		{
			name: "of a cloud that knows one of them", arguments: map[string]cty.Value{"count": num(2),
				"provider": str("hcloud")},
			objects: []fixture{{cp, readyNode}, {worker, cloudNode}},
			want:    "1 of 2 nodes not ready: blue-cp-01 (has no provider id hcloud://… yet)",
		},
		{
			name: "of a cloud that knows them", arguments: map[string]cty.Value{"count": num(1),
				"provider": str("hcloud")},
			objects: []fixture{{worker, cloudNode}},
		},
		{
			name: "only registered", arguments: map[string]cty.Value{"count": num(2), "ready": cty.False},
			objects: []fixture{{cp, newNode}, {worker, silentNode}},
		},
	})
}
