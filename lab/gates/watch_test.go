package gates_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// follower is a wait that relies on its watches alone: its poll interval is too long to matter.
type follower struct {
	t       testing.TB
	answers chan string
	done    chan error
}

func (p *plane) follow(t testing.TB, name string, arguments args) follower {
	t.Helper()
	f := follower{t: t, answers: make(chan string, 64), done: make(chan error, 1)}
	g := p.gate(t, name, arguments)
	go func() {
		f.done <- gate.Wait(t.Context(), g,
			gate.Policy{First: time.Hour, Most: time.Hour, Timeout: time.Minute}, gate.Listener{
				Answer: func(closed error) {
					if closed != nil {
						f.answers <- closed.Error()
					}
				},
			})
	}()
	return f
}

// says waits until the gate returns this error.
func (f follower) says(want string) {
	f.t.Helper()
	last := "nothing"
	for last != want {
		select {
		case last = <-f.answers:
		case err := <-f.done:
			f.t.Fatalf("the wait is over (%v) after %q\nwant %q", err, last, want)
		}
	}
}

func (f follower) opens() {
	f.t.Helper()
	check(f.t, <-f.done)
}

const valves = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: valves.watch.example.org}
spec:
  group: watch.example.org
  names: {kind: Valve, plural: valves, singular: valve}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func TestAWatchWaitsForItsKindAndFollowsItsObject(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	defined := p.follow(t, "crd", args{"names": texts("valves.watch.example.org")})
	f := p.follow(t, "condition", args{"kind": text("Valve"), "namespace": text(ns)})
	defined.says("customresourcedefinition valves.watch.example.org does not exist yet")
	f.says("the API serves no kind Valve yet")
	p.create(t, "", valves)
	defined.opens()
	f.says("no Valve in namespace " + ns + " exists yet")
	p.create(t, ns, `{apiVersion: watch.example.org/v1, kind: Valve, metadata: {name: main, namespace: `+
		`NAMESPACE}}`)
	f.says("valve " + ns + "/main: has no condition Ready yet")
	p.report(t, ns, `{apiVersion: watch.example.org/v1, kind: Valve, metadata: {name: main, namespace: `+
		`NAMESPACE}, status: {conditions: [{type: Ready, status: "True"}]}}`)
	f.opens()
}

func TestEveryKindOfBuiltInObjectIsFollowed(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	class := p.follow(t, "storage_class", args{"name": text("followed"), "selector": text("followed=yes"),
		"default": cty.False})
	workload := p.follow(t, "workload", args{"kind": text("Deployment"), "namespace": text(ns),
		"name": text("front")})
	endpoints := p.follow(t, "endpoint_slice", args{"namespace": text(ns), "service": text("front")})
	balancer := p.follow(t, "load_balancer", args{"namespace": text(ns), "service": text("front")})
	hook := p.follow(t, "webhook", args{"configuration": text("followed-" + ns)})
	nodes := p.follow(t, "nodes", args{"count": number(1)})

	class.says("storageclass followed does not exist yet")
	workload.says("deployment " + ns + "/front does not exist yet")
	endpoints.says("service " + ns + "/front does not exist yet")
	balancer.says("service " + ns + "/front does not exist yet")
	hook.says("webhook configuration followed-" + ns + " does not exist yet")
	nodes.says("0 of 1 nodes registered")

	authority, err := newAuthority("guard", "guard."+ns+".svc")
	check(t, err)
	p.create(t, ns, front)
	balancer.says("service " + ns + "/front: has no address yet")
	p.create(t, ns, followed(authority.Certificate))
	hook.says("service " + ns + "/front: no endpoints yet")
	p.create(t, ns, frontPods)
	workload.says("deployment " + ns + "/front: 0 of 1 available")
	p.create(t, "", `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: followed}
provisioner: followed.example.org
---
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: followed.example.org},
 spec: {attachRequired: true}}
`)
	class.says("no node with followed=yes exists yet")

	p.node(t, "followed")
	for _, f := range []follower{nodes, workload, endpoints, hook} {
		f.opens()
	}
	p.report(t, ns, `{apiVersion: v1, kind: Service, metadata: {name: front, namespace: NAMESPACE}, `+
		`status: {loadBalancer: {ingress: [{ip: 192.0.2.30}]}}}`)
	balancer.opens()
	p.change(t, "", `{apiVersion: v1, kind: Node, metadata: {name: followed, labels: {followed: "yes"}}}`)
	class.says("csidriver followed.example.org: not registered on 1 of 1 nodes: followed")
	p.create(t, "", `{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: followed}, spec: `+
		`{drivers: [{name: followed.example.org, nodeID: followed, topologyKeys: []}]}}`)
	class.opens()
}

// followed is a webhook that nothing ever calls.
func followed(bundle []byte) string {
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
		metadata: {name: followed-NAMESPACE}, webhooks: [{
		name: never.followed.example.org, admissionReviewVersions: [v1], sideEffects: None,
		clientConfig: {service: {namespace: NAMESPACE, name: front}, caBundle: "` +
		base64.StdEncoding.EncodeToString(bundle) + `"},
		rules: [{operations: [CREATE], apiGroups: [followed.example.org], apiVersions: [v1],
			resources: [nothings]}]}]}`
}
