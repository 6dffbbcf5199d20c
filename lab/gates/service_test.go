package gates_test

import "testing"

const front = `
apiVersion: v1
kind: Service
metadata: {name: front, namespace: NAMESPACE}
spec:
  type: LoadBalancer
  allocateLoadBalancerNodePorts: false
  selector: {app: front}
  ports: [{name: https, port: 443, targetPort: 8443}]
`

const frontPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: front, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: front}}
  template:
    metadata: {labels: {app: front}}
    spec: {containers: [{name: c, image: example.org/c}]}
`

func TestEndpointSliceFollowsThePods(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "endpoint_slice", args{"namespace": text(ns), "service": text("front")})
	closed(t, g, "service "+ns+"/front does not exist yet")
	p.create(t, ns, front)
	becomes(t, g, "service "+ns+"/front: no endpoints yet")
	p.node(t, "front")
	p.create(t, ns, frontPods)
	opens(t, g)
	p.change(t, ns, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: front, namespace: `+
		`NAMESPACE}, spec: {replicas: 0}}`)
	becomes(t, g, "service "+ns+"/front: no endpoints yet")
}

// A Service may have slices that others than its controller write: one for each
// address family, and those of endpoints outside the cluster.
func TestEndpointSliceReadsEverySlice(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	slice := func(name, endpoint string) string {
		return `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, ports: [{name: ` +
			`https, port: 443}], endpoints: [` + endpoint + `],
			metadata: {name: ` + name + `, namespace: NAMESPACE, labels: {
				kubernetes.io/service-name: outside, endpointslice.kubernetes.io/managed-by: castle}}}`
	}
	p.create(t, ns, `{apiVersion: v1, kind: Service, metadata: {name: outside, namespace: NAMESPACE}, `+
		`spec: {ports: [{name: https, port: 443}]}}`)
	g := p.gate(t, "endpoint_slice", args{"namespace": text(ns), "service": text("outside")})
	p.create(t, ns, slice("one", `{addresses: [192.0.2.1], conditions: {ready: false}}`))
	closed(t, g, "service "+ns+"/outside: 0 of 1 endpoints ready")
	p.create(t, ns, slice("two", `{addresses: [192.0.2.2], conditions: {ready: true, terminating: true}}`))
	closed(t, g, "service "+ns+"/outside: 0 of 2 endpoints ready")
	p.create(t, ns, slice("three", `{addresses: [192.0.2.3]}`))
	open(t, g)
}

func TestLoadBalancerWaitsForTheAddressThatWasAskedFor(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	what := "service " + ns + "/front"
	g := p.gate(t, "load_balancer", args{"namespace": text(ns), "service": text("front")})
	closed(t, g, what+" does not exist yet")
	p.create(t, ns, front)
	closed(t, g, what+": has no address yet")
	p.report(t, ns, `{apiVersion: v1, kind: Service, metadata: {name: front, namespace: NAMESPACE}, `+
		`status: {loadBalancer: {ingress: [{ip: 192.0.2.30}]}}}`)
	open(t, g)
	other := p.gate(t, "load_balancer", args{"namespace": text(ns), "service": text("front"),
		"address": text("192.0.2.31")})
	closed(t, other, what+": has 192.0.2.30, not 192.0.2.31")
	p.change(t, ns, `{apiVersion: v1, kind: Service, metadata: {name: front, namespace: NAMESPACE, `+
		`annotations: {metallb.io/loadBalancerIPs: 192.0.2.31}}}`)
	closed(t, g, what+": has 192.0.2.30, not 192.0.2.31")
	p.report(t, ns, `{apiVersion: v1, kind: Service, metadata: {name: front, namespace: NAMESPACE}, `+
		`status: {loadBalancer: {ingress: [{ip: 192.0.2.31}]}}}`)
	open(t, g)
	open(t, other)

	p.change(t, ns, `{apiVersion: v1, kind: Service, metadata: {name: front, namespace: NAMESPACE}, spec: `+
		`{type: ClusterIP, allocateLoadBalancerNodePorts: null}}`)
	closed(t, g, what+": is of type ClusterIP, not LoadBalancer")
}
