package kube

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
)

const (
	announced = "/api/v1/namespaces/web/services/shop"
	// assigned is a Service that has an address of Cilium.
	assigned = `{kind: Service, metadata: {namespace: web, name: shop}, spec: {type: LoadBalancer}, status: {
		loadBalancer: {ingress: [{ip: 192.168.1.232}]},
		conditions: [{type: cilium.io/IPAMRequestSatisfied, status: "True", reason: satisfied}]}}`
	leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
)

func lease(holder string) fixture {
	return fixture{leases + "/cilium-l2announce-web-shop", "{kind: Lease, metadata: {" +
		"namespace: kube-system, name: cilium-l2announce-web-shop}, spec: {holderIdentity: " + holder + "}}"}
}

// servesLeases are the kinds that the gate lists in all namespaces, or where none is.
var servesLeases = []kind{{"v1", "Service", "services", true},
	{"coordination.k8s.io/v1", "Lease", "leases", true}}

func inKubeSystem() map[string]cty.Value {
	return map[string]cty.Value{"namespace": str("kube-system")}
}

func TestAnnouncement(t *testing.T) {
	const node, what = "/api/v1/nodes/green-w-01", "service web/shop: "
	service := func(text string) fixture { return fixture{announced, text} }
	runTrials(t, "announcement", []trial{
		{name: "no Service", arguments: inKubeSystem(), serves: servesLeases},
		{name: "announced", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{{node, readyNode}, service(assigned), lease("green-w-01")}},
		{name: "no lease", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{{node, readyNode}, service(assigned)},
			want:    what + "no node announces 192.168.1.232"},
		{name: "a lease without a holder", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{{node, readyNode}, service(assigned), lease(`""`)},
			want:    what + "no node announces 192.168.1.232"},
		{name: "the lease of another Service", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{{node, readyNode}, service(assigned), {leases + "/cilium-l2announce-web-shops",
				"{kind: Lease, metadata: {name: cilium-l2announce-web-shops}, spec: {holderIdentity: a}}"}},
			want: what + "no node announces 192.168.1.232"},
		{name: "a dead holder", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{{node, deadNode}, service(assigned), lease("green-w-01")},
			want:    what + "node green-w-01 announces 192.168.1.232, and is not ready"},
		{name: "a holder that was removed", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{{node, readyNode}, service(assigned), lease("green-w-02")},
			want: what + "node green-w-02 announces 192.168.1.232, and is no node of the " +
				"cluster"},
		{name: "an address of somebody else", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{service(
				`{kind: Service, spec: {type: LoadBalancer},
				status: {loadBalancer: {ingress: [{ip: 192.168.1.240}]}}}`)}},
		{name: "a class of somebody else", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{service(
				`{kind: Service, spec: {type: LoadBalancer, loadBalancerClass: io.cilium/bgp-control-plane},
				status: {loadBalancer: {ingress: [{ip: 192.168.1.240}]},
				conditions: [{type: cilium.io/IPAMRequestSatisfied, status: "True"}]}}`)}},
	})
}

func TestDiagnoseAnnouncement(t *testing.T) {
	runDiagnoses(t, "announcement", inKubeSystem(), []diagnosed{{
		name: "no lease", serves: servesLeases, objects: []fixture{{announced, assigned}},
		cause: "service web/shop: no node announces 192.168.1.232; no CiliumL2AnnouncementPolicy selects " +
			"the Service and a node with a ready agent, or the agents run without l2announcements",
		look: "kubectl get ciliuml2announcementpolicies,services,leases -A",
	}})
}
