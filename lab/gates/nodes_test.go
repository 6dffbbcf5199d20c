package gates_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestNodesWaitsForKubeletAndNetwork(t *testing.T) {
	p := control(t)
	g := p.gate(t, "nodes", args{"count": number(2)})
	registered := p.gate(t, "nodes", args{"count": number(2), "ready": cty.False})
	closed(t, g, "0 of 2 nodes registered")
	p.node(t, "nodes-1")
	becomes(t, g, "1 of 2 nodes registered: only nodes-1")

	// Only the test acts as the kubelet of this node.
	p.create(t, "", `{apiVersion: v1, kind: Node, metadata: {name: nodes-2}}`)
	open(t, registered)
	becomes(t, g, "1 of 2 nodes not ready: nodes-2 (has no condition Ready yet)")
	say := func(conditions string) {
		t.Helper()
		p.report(t, "", `{apiVersion: v1, kind: Node, metadata: {name: nodes-2}, status: {conditions: [`+
			conditions+`]}}`)
	}
	say(`{type: Ready, status: "False", reason: KubeletNotReady, message: "container runtime network not ` +
		`ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni ` +
		`plugin not initialized"}`)
	becomes(t, g, "1 of 2 nodes not ready: nodes-2 (no network yet: KubeletNotReady: container runtime "+
		"network not ready: NetworkReady=false reason:NetworkPluginNotReady message:"+
		"Network plugin returns error: cni plugin not initialized)")

	// The control plane itself taints a node with the condition NetworkUnavailable.
	say(`{type: Ready, status: "True", reason: KubeletReady}, {type: NetworkUnavailable, status: "True", ` +
		`reason: NoRouteCreated}`)
	becomes(t, g, "1 of 2 nodes not ready: nodes-2 (network unavailable)")
	say(`{type: Ready, status: "True", reason: KubeletReady}, {type: NetworkUnavailable, status: "False", ` +
		`reason: RouteCreated}`)
	opens(t, g)
}

func TestNodesAreExactlyTheNamedOnes(t *testing.T) {
	p := control(t)
	g := p.gate(t, "nodes", args{"names": texts("named-1", "named-2")})
	p.node(t, "named-1")
	p.node(t, "named-2")
	opens(t, g)

	// Nothing deletes the node of a machine that was removed.
	removed := `{apiVersion: v1, kind: Node, metadata: {name: named-3}}`
	p.create(t, "", removed)
	hopeless(t, g, "named-3 not in the configuration; once its machine is gone: kubectl delete node named-3")
	p.remove(t, "", removed)
	opens(t, g)
}

func TestKubernetesVersionIsReadFromKubelets(t *testing.T) {
	p := control(t)
	p.node(t, "version-1")
	g := p.gate(t, "kubernetes_version", args{"version": text("1.99.0")})
	becomesLike(t, g, "Kubernetes 1.99.0 is wanted", "1.36.0 runs on kubelet version-1")
}
