package kube

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
)

const webDeployment = `
kind: Deployment
spec: {replicas: 1, selector: {matchLabels: {app: web}}}
status: {observedGeneration: 1}
`

// webPod is a Pod of the Deployment web with some status, as YAML.
func webPod(status string) fixture {
	return fixture{"/api/v1/namespaces/shop/pods/web-1", `
kind: Pod
metadata: {labels: {app: web}}
spec: {nodeName: worker-01, containers: [{name: app, image: registry.test/web:1}]}
status: ` + status}
}

func waitingFor(reason, message string) string {
	return `{phase: Pending, containerStatuses: [{name: app, image: "registry.test/web:1", ` +
		`restartCount: 0, state: {waiting: {reason: ` + reason + `, message: '` + message + `'}}}]}`
}

func TestAWorkloadIsExplained(t *testing.T) {
	web := fixture{"/apis/apps/v1/namespaces/shop/deployments/web", webDeployment}
	shop := fixture{"/api/v1/namespaces/shop", "kind: Namespace"}
	runDiagnoses(t, "workload", map[string]cty.Value{"kind": str("Deployment"), "namespace": str("shop"),
		"name": str("web")}, []diagnosed{
		{
			name: "an image that cannot be pulled",
			objects: []fixture{
				web, webPod(waitingFor("ImagePullBackOff", "Back-off pulling image")),
				eventOn("shop", "Pod", "web-1", "Failed", "Failed to pull image: 429 Too Many Requests"),
			},
			cause: "image registry.test/web:1 of pod shop/web-1 cannot be pulled: Failed to pull image: " +
				"429 Too Many Requests",
			look: "kubectl -n shop describe pod web-1",
			files: []string{"objects/deployment/shop/web.yaml", "objects/pod/shop/web-1.yaml",
				"events/shop.txt"},
			holds: map[string]string{"events/shop.txt": "2026-01-02T03:04:05Z  warning  3x  Failed  " +
				"pod/web-1  Failed to pull image"},
		},
		{
			name: "no node",
			objects: []fixture{web, webPod(`{phase: Pending, conditions: [{type: PodScheduled,
				status: "False",
				reason: Unschedulable,
  message: "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."}]}`)},
			cause: "pod shop/web-1 fits on no node: 0/2 nodes are available: 2 node(s) had untolerated " +
				"taint {node.kubernetes.io/not-ready: }.",
		},
		{
			name: "a Secret that is not there",
			objects: []fixture{
				web, webPod(waitingFor("ContainerCreating", "")),
				eventOn("shop", "Pod", "web-1", "FailedMount",
					`MountVolume.SetUp failed for volume "tls" : secret "web-tls" not found`),
			},
			cause: "secret shop/web-tls does not exist, and pod shop/web-1 needs it",
		},
		{
			name: "a ConfigMap that a variable wants",
			objects: []fixture{
				web, webPod(waitingFor("CreateContainerConfigError", `configmap "cluster-vars" not found`)),
			},
			cause: "configmap shop/cluster-vars does not exist, and pod shop/web-1 needs it",
		},
		{
			name: "no network",
			objects: []fixture{web, webPod(waitingFor("ContainerCreating", "")),
				eventOn("shop", "Pod", "web-1", "FailedCreatePodSandBox", `plugin type="flannel" failed`)},
			cause: `the node's network or container runtime cannot set up pod shop/web-1: plugin ` +
				`type="flannel" failed`,
		},
		{
			name: "a crash",
			objects: []fixture{web, webPod(`{phase: Running, containerStatuses: [{name: app, restartCount: 4,
  state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2}}}]}`)},
			answers: map[string]answer{"/api/v1/namespaces/shop/pods/web-1/log": {200,
				"reading the configuration\nno route to 10.96.0.1\n"}},
			cause: "container app of pod shop/web-1 ended with exit code 2, 4 restarts so far, last log " +
				"line: no route to 10.96.0.1",
			look: "kubectl -n shop logs web-1 --all-containers --previous",
			holds: map[string]string{"pods/shop/web-1.log": "--- container app, before its last " +
				"restart\nreading the configuration\nno route to 10.96.0.1\n"},
		},
		{
			name: "too much memory",
			objects: []fixture{web, webPod(`{phase: Running, containerStatuses: [{name: app, restartCount: 4,
  state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137,
    reason: OOMKilled}}}]}`)},
			cause: "container app of pod shop/web-1 is killed because it uses more memory than its limit",
		},
		{
			name: "a probe that fails",
			objects: []fixture{
				web, webPod(`{phase: Running, containerStatuses: [{name: app, ready: false, ` +
					`restartCount: 0, state: {running: {}}}]}`),
				eventOn("shop", "Pod", "web-1", "Unhealthy",
					"Readiness probe failed: HTTP probe failed with statuscode: 503"),
			},
			cause: "container app of pod shop/web-1 runs but is not ready: Readiness probe failed: HTTP " +
				"probe failed with statuscode: 503",
		},
		{
			name:    "a node that says nothing",
			objects: []fixture{web, webPod(`{phase: Pending}`)},
			cause:   "pod shop/web-1 is scheduled to node worker-01, which has not reported on it",
		},
		{
			name: "Pod Security",
			objects: []fixture{web, eventOn("shop", "ReplicaSet", "web-5d8", "FailedCreate",
				`pods "web-5d8-x" is forbidden: violates PodSecurity "restricted:latest": privileged`)},
			cause: `deployment shop/web: the namespace's Pod Security level forbids its Pods: pods ` +
				`"web-5d8-x" is forbidden: violates PodSecurity "restricted:latest": privileged`,
		},
		{
			name: "a quota",
			objects: []fixture{web, eventOn("shop", "ReplicaSet", "web-5d8", "FailedCreate",
				`pods "web-5d8-x" is forbidden: exceeded quota: small`)},
			cause: `deployment shop/web: the namespace's quota is used up: pods "web-5d8-x" is forbidden: ` +
				`exceeded quota: small`,
		},
		{
			name: "scaled to nothing",
			objects: []fixture{{web.at, "{kind: Deployment, spec: {replicas: 0, selector: {matchLabels: " +
				"{app: " +
				"web}}}, status: {observedGeneration: 1}}"}},
			cause: "deployment shop/web is scaled to 0",
			look:  "kubectl -n shop describe deployment web",
		},
		{
			name:    "a controller that is down",
			objects: []fixture{{web.at, "{kind: Deployment, spec: {selector: {matchLabels: {app: web}}}}"}},
			cause: "deployment shop/web: its controller has not seen it yet: kube-controller-manager " +
				"may be down",
		},
		{
			name:  "a namespace that is not there",
			cause: "namespace shop does not exist, so that nothing is in it",
		},
		{
			name: "nothing at all", objects: []fixture{shop},
			cause: "deployment shop/web does not exist: it was never created, or it was deleted",
			look:  "kubectl -n shop get all,deployment",
		},
		{name: "nothing that is known", objects: []fixture{web}, cause: ""},
	})
}

func TestADaemonSetWithoutANodeIsExplained(t *testing.T) {
	set := func(spec string) fixture {
		return fixture{"/apis/apps/v1/namespaces/shop/daemonsets/agent", `
kind: DaemonSet
spec: {selector: {matchLabels: {app: agent}}, template: {spec: ` + spec + `}}
status: {observedGeneration: 1, desiredNumberScheduled: 0}`}
	}
	node := fixture{"/api/v1/nodes/worker-01",
		"{kind: Node, metadata: {labels: {kubernetes.io/os: linux}}, spec: {taints: [{key: maintenance, " +
			"effect: NoSchedule}]}}"}
	runDiagnoses(t, "workload", map[string]cty.Value{"kind": str("DaemonSet"), "namespace": str("shop"),
		"name": str("agent")}, []diagnosed{
		{
			name: "labels", objects: []fixture{set("{nodeSelector: {kubernetes.io/os: plan9}}"), node},
			cause: "daemonset shop/agent: no node has the labels of its nodeSelector: kubernetes.io/os=plan9",
			files: []string{"nodes.txt", "objects/node/worker-01.yaml"},
		},
		{
			name: "taints", objects: []fixture{set("{nodeSelector: {kubernetes.io/os: linux}}"), node},
			cause: "daemonset shop/agent: every node that it selects has a taint that its Pods do not " +
				"tolerate: worker-01 (maintenance:NoSchedule)",
		},
		{
			name: "affinity", objects: []fixture{set("{tolerations: [{operator: Exists}]}"), node},
			cause: "daemonset shop/agent: no node matches its nodeSelector and affinity",
		},
		{name: "no node at all", objects: []fixture{set("{}")},
			cause: "daemonset shop/agent: there is no node"},
	})
}
