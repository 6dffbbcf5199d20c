package kube

import (
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Everything here runs well and is of no use, by something that somebody else has created.

const (
	newPods  = "POST /api/v1/namespaces/metallb-system/pods"
	quotas   = "/api/v1/namespaces/metallb-system/resourcequotas"
	policies = "/apis/networking.k8s.io/v1/namespaces/metallb-system/networkpolicies"
	pools    = "/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools"
)

var uselessKinds = []kind{{"v1", "ResourceQuota", "resourcequotas", true},
	{"networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true},
	{"metallb.io/v1beta1", "IPAddressPool", "ipaddresspools", true}}

var (
	noWebhook = failure(500, metav1.StatusReasonInternalError, `Internal error occurred: failed calling `+
		`webhook "pods.stranger.test": failed to call webhook: Post `+
		`"https://gone.stranger.svc:443/?timeout=10s": no endpoints available for service "gone"`)
	denies = failure(403, metav1.StatusReasonForbidden,
		`admission webhook "pods.stranger.test" denied the request: no Pods today`)
	overQuota = failure(403, metav1.StatusReasonForbidden, `pods "controller-x" is forbidden: exceeded `+
		`quota: none, requested: pods=1, used: pods=1, limited: pods=0`)
)

func TestAWorkloadIsClosedIfTheAPIRefusesItsNextPod(t *testing.T) {
	controller := fixture{apps + "deployments/controller", rolledOut}
	quota := func(most, used string) fixture {
		return fixture{quotas + "/none", `{kind: ResourceQuota, status: {hard: {pods: "` + most +
			`"}, used: {pods: "` + used + `"}}}`}
	}
	of := func(a answer) map[string]answer { return map[string]answer{newPods: a} }
	what := "namespace metallb-system: the API refuses a new Pod: "
	arguments := is("Deployment", "controller")
	runTrials(t, "workload", []trial{
		{
			name: "by a webhook that nobody serves", arguments: arguments, objects: []fixture{controller},
			answers: of(noWebhook), want: what + `failed calling webhook "pods.stranger.test": failed to ` +
				`call webhook: Post "https://gone.stranger.svc:443/?timeout=10s": no endpoints available ` +
				`for service "gone"`,
		},
		{
			name: "by a webhook that denies it", arguments: arguments, objects: []fixture{controller},
			answers: of(denies),
			want:    what + `admission webhook "pods.stranger.test" denied the request: no Pods today`,
		},
		{
			name: "by a quota of no Pods", arguments: arguments, serves: uselessKinds, answers: of(overQuota),
			objects: []fixture{controller, quota("0", "1")},
			want:    "resourcequota metallb-system/none: allows 0 pods, and 1 are in use",
		},
		{name: "not by a quota that has room for a Pod in the place of another", arguments: arguments,
			serves: uselessKinds, answers: of(overQuota), objects: []fixture{controller, quota("1", "1")}},
		{
			name: "not while it is not rolled out", arguments: is("DaemonSet", "speaker"),
			answers: of(denies),
			objects: []fixture{{apps + "daemonsets/speaker", `{kind: DaemonSet, metadata: {generation: 1},
				status: {observedGeneration: 1, desiredNumberScheduled: 0}}`}},
			want: "daemonset metallb-system/speaker: 0 of 1 pods requested",
		},
		{
			name: "not for a user without the right", arguments: arguments, objects: []fixture{controller},
			answers: of(failure(403, metav1.StatusReasonForbidden, `pods is forbidden: User "guest" cannot `+
				`create resource "pods"`)),
			want: `kubernetes API at HOST refuses the kubeconfig's user: pods is forbidden: User "guest" ` +
				`cannot create resource "pods"`, permanent: true,
		},
	})
}

func TestTheNextPodCostsAWorkloadOneRequest(t *testing.T) {
	f := newFakeAPI(t)
	f.add(t, apps+"deployments/controller", rolledOut)
	g := newGate(t, "workload", f.kubeconfig(), is("Deployment", "controller"))
	expect(t, f, g.Check(t.Context()), "", false)
	want := []string{"GET " + apps + "deployments/controller", newPods}
	if !slices.Equal(f.asked, want) {
		t.Errorf("asked %q, want %q", f.asked, want)
	}
}

func TestNetworkPolicy(t *testing.T) {
	const all = "{policyTypes: [Ingress, Egress], podSelector: {}}"
	policy := func(name, spec string) fixture {
		return fixture{policies + "/" + name, "{kind: NetworkPolicy, spec: " + spec + "}"}
	}
	here := map[string]cty.Value{"namespace": str("metallb-system")}
	const of = "networkpolicy metallb-system/deny: denies all "
	const alone = ", and no policy of the namespace allows any"
	runTrials(t, "network_policy", []trial{
		{name: "none", arguments: here, serves: uselessKinds},
		{
			name: "denies all", arguments: here, serves: uselessKinds,
			objects: []fixture{policy("deny", all)},
			want:    of + "ingress" + alone + "; " + of + "egress" + alone,
		},
		{
			name: "denies all egress", arguments: here, serves: uselessKinds,
			objects: []fixture{policy("deny", "{policyTypes: [Egress], podSelector: {}}")},
			want:    of + "egress" + alone,
		},
		{
			name: "denies what others allow in the other direction", arguments: here, serves: uselessKinds,
			objects: []fixture{policy("allow", "{policyTypes: [Ingress], podSelector: {}, ingress: [{}]}"),
				policy("deny", all)},
			want: of + "egress" + alone,
		},
		{name: "denies by default, and others allow", arguments: here, serves: uselessKinds,
			objects: []fixture{policy("deny", all), policy("allow", "{policyTypes: [Ingress, Egress], "+
				"podSelector: {matchLabels: {app: metallb}}, ingress: [{}], egress: [{}]}")}},
		{name: "restricts", arguments: here, serves: uselessKinds, objects: []fixture{policy("some",
			"{policyTypes: [Ingress], podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}")}},
	})
}

func TestAddressPool(t *testing.T) {
	pool := func(name, addresses string) fixture {
		return fixture{pools + "/" + name, "{kind: IPAddressPool, spec: {addresses: [" + addresses + "]}}"}
	}
	arguments := map[string]cty.Value{"namespace": str("metallb-system"), "reserved": cty.MapVal(
		map[string]cty.Value{"the Kubernetes API": str("192.168.1.210"), "cp-01": str("192.168.1.211")})}
	main := pool("main", "192.168.1.240-192.168.1.249, 10.0.0.0/24")
	const guest = "ipaddresspool metallb-system/guest: "
	runTrials(t, "address_pool", []trial{
		{name: "apart", arguments: arguments, serves: uselessKinds, objects: []fixture{main}},
		{name: "none", arguments: arguments, serves: uselessKinds},
		{
			name: "a range of somebody else with the VIP", arguments: arguments, serves: uselessKinds,
			objects: []fixture{main, pool("guest", "192.168.1.210 - 192.168.1.210")}, permanent: true,
			want: guest + "contains 192.168.1.210 of the Kubernetes API",
		},
		{
			name: "a network of somebody else with a node", arguments: arguments, serves: uselessKinds,
			objects: []fixture{pool("guest", "10.1.0.0/16, 192.168.1.208/29"), main}, permanent: true,
			want: guest + "contains 192.168.1.211 of cp-01; 192.168.1.210 of the Kubernetes API",
		},
		{name: "the neighbours", arguments: arguments, serves: uselessKinds, objects: []fixture{
			pool("guest", "192.168.1.1-192.168.1.209, 192.168.1.212/30"),
			pool("guest6", "2001:db8::/64, '2001:db8:1::1-2001:db8:1::9'")}},
		{
			name: "no range", arguments: arguments, serves: uselessKinds, permanent: true,
			objects: []fixture{pool("guest", "everything")},
			want:    guest + `its addresses cannot be read: ParseAddr("everything"): unable to parse IP`,
		},
		{name: "no kind", arguments: arguments,
			want: "the API serves no kind IPAddressPool in metallb.io/v1beta1 yet"},
	})
	if _, err := gateType(t, "address_pool").New("x", gate.Target{}, gate.Values{"reserved": cty.MapVal(
		map[string]cty.Value{"cp-01": str("cp-01.example.org")})}); err == nil {
		t.Error("a name is taken for an address")
	}
}

func TestConditionWantsFieldsThatNobodyHasSet(t *testing.T) {
	serves := []kind{{"metallb.io/v1beta1", "L2Advertisement", "l2advertisements", true}}
	const at = "/apis/metallb.io/v1beta1/namespaces/metallb-system/l2advertisements/main"
	asks := func(path string) map[string]cty.Value {
		return map[string]cty.Value{"kind": str("L2Advertisement"), "namespace": str("metallb-system"),
			"fields": cty.ObjectVal(map[string]cty.Value{path: str("")})}
	}
	is := func(spec string) []fixture { return []fixture{{at, "{kind: L2Advertisement, " + spec + "}"}} }
	const what = "l2advertisement metallb-system/main: "
	interfaces := asks("spec.interfaces")
	runTrials(t, "condition", []trial{
		{name: "absent", serves: serves, arguments: interfaces, objects: is("spec: {}")},
		{name: "null", serves: serves, arguments: interfaces, objects: is("spec: {interfaces: null}")},
		{name: "empty", serves: serves, arguments: interfaces, objects: is("spec: {interfaces: []}")},
		{name: "set", serves: serves, arguments: interfaces, objects: is("spec: {interfaces: [eth9]}"),
			want: what + `spec.interfaces is ["eth9"], and should not be set`},
		{name: "a value", serves: serves, arguments: asks("spec.a"), objects: is("spec: {a: false}"),
			want: what + "spec.a is false, and should not be set"},
		{name: "deeper", serves: serves, arguments: asks("spec.a.*.b"), objects: is("spec: {a: [{b: 1}]}"),
			want: what + "spec.a.0.b is 1, and should not be set"},
		{name: "no status at all", serves: serves, arguments: asks("status.error"), objects: is("spec: {}"),
			want: what + "has no status.error yet"},
	})
}

func TestUselessStagesAreExplained(t *testing.T) {
	controller := fixture{apps + "deployments/controller", rolledOut}
	runDiagnoses(t, "workload", is("Deployment", "controller"), []diagnosed{
		{
			name: "a webhook of somebody else", objects: []fixture{controller},
			answers: map[string]answer{newPods: noWebhook},
			cause: `namespace metallb-system: the API refuses a new Pod: failed calling ` +
				`webhook "pods.stranger.test": failed to call webhook: Post ` +
				`"https://gone.stranger.svc:443/?timeout=10s": no endpoints available for service "gone"; ` +
				`an admission webhook does not answer, so that a Pod that ends is not replaced: ` +
				`start its server, or delete its configuration`,
			look: "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
		},
		{
			name: "a quota", serves: uselessKinds, answers: map[string]answer{newPods: overQuota},
			objects: []fixture{controller, {quotas + "/none",
				`{kind: ResourceQuota, status: {hard: {pods: "0"}, used: {pods: "1"}}}`}},
			cause: "resourcequota metallb-system/none: allows 0 pods, and 1 are in use; a Pod that ends is " +
				"not replaced: raise the quota, or delete it",
			look: "kubectl -n metallb-system describe resourcequotas",
		},
	})
	runDiagnoses(t, "network_policy", map[string]cty.Value{"namespace": str("metallb-system")}, []diagnosed{{
		name: "a policy", serves: uselessKinds,
		objects: []fixture{{policies + "/deny",
			"{kind: NetworkPolicy, spec: {policyTypes: [Egress], podSelector: {}}}"}},
		cause: "networkpolicy metallb-system/deny: denies all egress, and no policy of the namespace " +
			"allows any; where the cluster's network enforces policies, its Pods are cut off: delete it, " +
			"or allow their traffic",
		look: "kubectl -n metallb-system get -o yaml networkpolicies",
	}})
	runDiagnoses(t, "address_pool", map[string]cty.Value{"namespace": str("metallb-system"),
		"reserved": cty.MapVal(map[string]cty.Value{"cp-01": str("192.168.1.211")})}, []diagnosed{{
		name: "a pool", serves: uselessKinds,
		objects: []fixture{{pools + "/guest", "{kind: IPAddressPool, spec: {addresses: [192.168.1.0/24]}}"}},
		cause: "ipaddresspool metallb-system/guest: contains 192.168.1.211 of cp-01; " +
			"MetalLB may give it to a Service, and then answers ARP for it: take it out of the " +
			"pool, or delete the pool",
		look: "kubectl -n metallb-system get -o yaml ipaddresspools.metallb.io",
	}})
	runDiagnoses(t, "condition", map[string]cty.Value{"kind": str("IPAddressPool"), "name": str("main"),
		"namespace": str("metallb-system"), "fields": cty.ObjectVal(map[string]cty.Value{
			"spec.autoAssign": str("true")})}, []diagnosed{{
		name: "a field", serves: uselessKinds,
		objects: []fixture{{pools + "/main", "{kind: IPAddressPool, spec: {autoAssign: false}}"}},
		cause: "ipaddresspool metallb-system/main: spec.autoAssign is false, not true; somebody has set " +
			"it: castle create restores what the stage's chart sets, and kubectl edit the rest",
		look: "kubectl -n metallb-system describe ipaddresspool main",
	}})
}
