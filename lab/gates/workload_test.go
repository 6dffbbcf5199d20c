package gates_test

import "testing"

// of is a workload's manifest around its Pods.
func of(kind, name, spec, pod string) string {
	return `{apiVersion: apps/v1, kind: ` + kind + `, metadata: {name: ` + name + `, namespace: NAMESPACE},
		spec: {` + spec + ` selector: {matchLabels: {app: ` + name + `}},
			template: {metadata: {labels: {app: ` + name + `}}, spec: {` + pod + `
				containers: [{name: c, image: example.org/c}]}}}}`
}

func TestWorkloadFollowsARollout(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "workload", args{"kind": text("Deployment"), "namespace": text(ns),
		"name": text("operator")})
	closed(t, g, "deployment "+ns+"/operator does not exist yet")
	p.create(t, ns, of("Deployment", "operator", "", ""))
	becomes(t, g, "deployment "+ns+"/operator: 0 of 1 available")
	p.node(t, "rollout")
	opens(t, g)

	// Until its controller has seen the change, the old status speaks of the old Pods.
	p.change(t, ns, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: operator, namespace: NAMESPACE},
		spec: {template: {spec: {nodeSelector: {disk: none}}}}}`)
	becomes(t, g, "deployment "+ns+"/operator: Pending termination: 1")
	p.change(t, ns, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: operator, namespace: NAMESPACE},
		spec: {template: {spec: {nodeSelector: {disk: null}}}}}`)
	opens(t, g)
	p.change(t, ns, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: operator, namespace: `+
		`NAMESPACE}, spec: {replicas: 0}}`)
	becomes(t, g, "deployment "+ns+"/operator: 0 of 1 pods requested")
}

func TestWorkloadIsClosedForADaemonSetThatIsMeantForNoNode(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "workload", args{"kind": text("DaemonSet"), "namespace": text(ns),
		"name": text("speaker")})
	p.node(t, "daemon")
	p.create(t, ns, of("DaemonSet", "speaker", "", "nodeSelector: {disk: none},"))
	becomes(t, g, "daemonset "+ns+"/speaker: 0 of 1 pods requested")
	p.change(t, "", `{apiVersion: v1, kind: Node, metadata: {name: daemon, labels: {disk: none}}}`)
	opens(t, g)
	closed(t,
		p.gate(t, "workload", args{"kind": text("DaemonSet"), "namespace": text(ns), "name": text("speaker"),
			"desired": number(2)}),
		"daemonset "+ns+"/speaker: 1 of 2 pods requested")
}

func TestWorkloadWaitsForEveryPodOfAStatefulSet(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	p.node(t, "stateful")
	p.create(t, ns, of("StatefulSet", "vault", "replicas: 2, serviceName: vault,", ""))
	opens(t,
		p.gate(t, "workload", args{"kind": text("StatefulSet"), "namespace": text(ns), "name": text("vault"),
			"desired": number(2)}))
	closed(t,
		p.gate(t, "workload", args{"kind": text("StatefulSet"), "namespace": text(ns), "name": text("vault"),
			"desired": number(3)}),
		"statefulset "+ns+"/vault: 2 of 3 pods requested")
}

func TestWorkloadTakesAJobForWhatItEndsAs(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	p.create(t, ns, `{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, namespace: NAMESPACE},
		spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: example.org/c}]}}}}`)
	g := p.gate(t, "workload", args{"kind": text("Job"), "namespace": text(ns), "name": text("migrate")})
	becomes(t, g, "job "+ns+"/migrate: not complete: 1 running, 0 succeeded, 0 failed")
	p.node(t, "batch")
	opens(t, g)

	p.create(t, ns, `{apiVersion: batch/v1, kind: Job, metadata: {name: late, namespace: NAMESPACE},
		spec: {activeDeadlineSeconds: 1, template: {spec: {restartPolicy: Never, nodeSelector: {disk: none},
			containers: [{name: c, image: example.org/c}]}}}}`)
	ends(t, p.gate(t, "workload", args{"kind": text("Job"), "namespace": text(ns), "name": text("late")}),
		"job "+ns+"/late failed: DeadlineExceeded: Job was active longer than specified deadline")
}
