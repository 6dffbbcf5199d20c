package gates_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
)

// What is somebody else's leaves everything running, and of no use. The control plane is shared with the
// other tests: nothing here reaches beyond the test's own namespace.

func TestWorkloadAsksForItsNextPod(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "workload", args{"kind": text("Deployment"), "namespace": text(ns), "name": text("web")})
	p.node(t, "next")
	p.create(t, ns, of("Deployment", "web", "", ""))
	opens(t, g)
	refuses := "namespace " + ns + ": the API refuses a new Pod: "

	quota := func(pods string) string {
		return `{apiVersion: v1, kind: ResourceQuota, metadata: {name: none, namespace: NAMESPACE},
			spec: {hard: {pods: "` + pods + `"}}}`
	}
	p.create(t, ns, quota("0"))
	becomes(t, g, "resourcequota "+ns+"/none: allows 0 pods, and 1 are in use")
	p.change(t, ns, quota("1")) // a Pod in the place of the one that is there fits
	opens(t, g)
	p.remove(t, ns, quota("1"))

	p.change(t, "", `{apiVersion: v1, kind: Namespace, metadata: {name: `+ns+`,
		labels: {pod-security.kubernetes.io/enforce: restricted}}}`)
	becomesLike(t, g, refuses+`pods "web-castle" is forbidden: violates PodSecurity "restricted:latest"`)
	p.change(t, "", `{apiVersion: v1, kind: Namespace, metadata: {name: `+ns+`,
		labels: {pod-security.kubernetes.io/enforce: null}}}`)
	opens(t, g)

	webhook := `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration,
		metadata: {name: stranger-NAMESPACE}, webhooks: [{name: pods.stranger.test,
			admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail,
			namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}},
			clientConfig: {service: {namespace: NAMESPACE, name: gone}},
			rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}]}`
	p.create(t, ns, webhook)
	becomesLike(t, g, refuses, `failed calling webhook "pods.stranger.test": `, `service "gone" not found`)
	p.remove(t, ns, webhook)
	opens(t, g)
}

func TestNetworkPolicyAddsUpWhatIsAllowed(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "network_policy", args{"namespace": text(ns)})
	open(t, g)
	policy := func(name, spec string) string {
		return `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy,
			metadata: {name: ` + name + `, namespace: NAMESPACE}, spec: {podSelector: {}, ` + spec + `}}`
	}
	p.create(t, ns, policy("deny", "policyTypes: [Ingress, Egress]"))
	denies := "networkpolicy " + ns + "/deny: denies all "
	const alone = ", and no policy of the namespace allows any"
	closed(t, g, denies+"ingress"+alone+"; "+denies+"egress"+alone)
	p.create(t, ns, policy("in", "ingress: [{}]"))
	closed(t, g, denies+"egress"+alone)
	p.create(t, ns, policy("out", "policyTypes: [Egress], egress: [{}]"))
	open(t, g)
	p.remove(t, ns, policy("in", "ingress: [{}]"))
	closed(t, g, denies+"ingress"+alone)
}

const addressPools = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipaddresspools.metallb.io}
spec:
  group: metallb.io
  names: {kind: IPAddressPool, plural: ipaddresspools, singular: ipaddresspool}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func TestAddressPoolFindsThePoolOfSomebodyElse(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "address_pool", args{"namespace": text(ns),
		"reserved": cty.MapVal(args{"the Kubernetes API": text("192.168.1.210")})})
	closed(t, g, "the API serves no kind IPAddressPool in metallb.io/v1beta1 yet")
	served(t, p, "ipaddresspools.metallb.io", addressPools)
	opens(t, g)
	pool := func(name, addresses string) string {
		return `{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: ` + name +
			`, namespace: NAMESPACE}, spec: {addresses: [` + addresses + `]}}`
	}
	p.create(t, ns, pool("main", "192.168.1.240-192.168.1.249"))
	open(t, g)
	p.create(t, ns, pool("guest", "192.168.1.208/29"))
	hopeless(t, g, "ipaddresspool "+ns+"/guest: contains 192.168.1.210 of the Kubernetes API")
	p.remove(t, ns, pool("guest", "192.168.1.208/29"))
	open(t, g)
}
