package gates_test

import "testing"

func TestWorkloadFollowsARollout(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "workload", args{"kind": text("Deployment"), "namespace": text(ns), "name": text("operator")})
	closed(t, g, "deployment "+ns+"/operator does not exist yet")
	p.create(t, ns, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: operator, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: operator}}
  template:
    metadata: {labels: {app: operator}}
    spec: {containers: [{name: c, image: example.org/c}]}
`)
	becomes(t, g, "deployment "+ns+"/operator: 0 of 1 available")
	p.node(t, "rollout")
	opens(t, g)
}
