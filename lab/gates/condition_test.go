package gates_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
)

const stores = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: stores.condition.example.org}
spec:
  group: condition.example.org
  names: {kind: Store, plural: stores, singular: store}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// served makes the definition and waits until objects can be made.
func served(t testing.TB, p *plane, name, definition string) {
	t.Helper()
	p.create(t, "", definition)
	opens(t, p.gate(t, "crd", args{"names": texts(name)}))
}

func TestConditionWaitsForTheKindTheObjectAndItsController(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	what := "store " + ns + "/vault"
	g := p.gate(t, "condition", args{"kind": text("Store"), "namespace": text(ns), "name": text("vault")})
	there := p.gate(t, "condition", args{"kind": text("Store"), "namespace": text(ns), "name": text("vault"),
		"exists": cty.True})
	closed(t, g, "the API serves no kind Store yet")
	served(t, p, "stores.condition.example.org", stores)
	closed(t, g, what+" does not exist yet")
	closed(t, there, what+" does not exist yet")

	p.create(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: vault, `+
		`namespace: NAMESPACE}, spec: {url: a}}`)
	open(t, there)
	closed(t, g, what+": has no condition Ready yet")
	p.report(t, ns,
		`{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: vault, namespace: NAMESPACE},
		status: {observedGeneration: 1, conditions: [
			{type: Ready, status: "False", reason: InvalidProviderConfig, message: no route}]}}`)
	closed(t, g, what+": Ready is False: InvalidProviderConfig: no route")
	p.report(t, ns,
		`{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: vault, namespace: NAMESPACE},
		status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`)
	open(t, g)

	// The API counts a change of the spec, and the controller has not seen it.
	p.change(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: vault, `+
		`namespace: NAMESPACE}, spec: {url: b}}`)
	closed(t, g, what+": Ready is True of an older generation")
	p.report(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: vault, `+
		`namespace: NAMESPACE}, status: {observedGeneration: 2}}`)
	open(t, g)

	// An object with a finalizer stays, still ready, until the finalizer is removed.
	p.change(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: vault, `+
		`namespace: NAMESPACE, finalizers: [example.org/keep]}}`)
	p.remove(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: vault, `+
		`namespace: NAMESPACE}}`)
	closed(t, g, what+": is being deleted")
	closed(t, there, what+": is being deleted")
	p.change(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: vault, `+
		`namespace: NAMESPACE, finalizers: []}}`)
	closed(t, g, what+" does not exist yet")
}

func TestConditionCountsAndComparesWhatIsSelected(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	served(t, p, "stores.condition.example.org", stores)
	g := p.gate(t, "condition", args{
		"kind": text("Store"), "api_version": text("condition.example.org/v1"), "namespace": text(ns),
		"selector": text("castle=wait"), "count": number(2),
		"fields": cty.MapVal(args{"status.state": text("deployed"), "status.replicas": text("3")}),
	})
	p.create(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: other, `+
		`namespace: NAMESPACE}}`)
	closed(t, g, "no Store in namespace "+ns+" with castle=wait exists yet")
	p.create(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: one, namespace: `+
		`NAMESPACE, labels: {castle: wait}}, status: {state: deployed, replicas: 3}}`)
	closed(t, g, "1 of 2 Store in namespace "+ns+" with castle=wait exist")
	p.create(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: two, namespace: `+
		`NAMESPACE, labels: {castle: wait}}}`)
	closed(t, g, "store "+ns+"/two: has no status.replicas yet")
	p.report(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: two, namespace: `+
		`NAMESPACE}, status: {replicas: 3, state: deploying}}`)
	closed(t, g, "store "+ns+"/two: status.state is deploying, not deployed")
	p.report(t, ns, `{apiVersion: condition.example.org/v1, kind: Store, metadata: {name: two, namespace: `+
		`NAMESPACE}, status: {state: deployed}}`)
	open(t, g)
}

func TestConditionRefusesAScopeThatTheKindHasNot(t *testing.T) {
	p := control(t)
	hopeless(t,
		p.gate(t, "condition", args{"kind": text("StorageClass"), "namespace": text("default"),
			"exists": cty.True}),
		"StorageClass: the kind is cluster-scoped; leave namespace out")
	hopeless(t,
		p.gate(t, "condition", args{"kind": text("ConfigMap"), "name": text("a"), "exists": cty.True}),
		"ConfigMap a: the kind is namespaced; set namespace")
	hopeless(t, p.gate(t, "condition", args{"kind": text("Event"), "exists": cty.True}),
		"kind Event is ambiguous; set api_version to one of events.k8s.io/v1, v1")
}
