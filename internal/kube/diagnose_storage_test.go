package kube

import (
	"fmt"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestAStorageClassIsExplained(t *testing.T) {
	serves := []kind{{"apps/v1", "DaemonSet", "daemonsets", true}}
	class := fixture{"/apis/storage.k8s.io/v1/storageclasses/longhorn",
		"{kind: StorageClass, provisioner: driver.longhorn.io}"}
	driver := fixture{"/apis/storage.k8s.io/v1/csidrivers/driver.longhorn.io", "{kind: CSIDriver}"}
	worker := fixture{"/api/v1/nodes/w-01", "{kind: Node}"}
	bare := fixture{"/apis/storage.k8s.io/v1/csinodes/w-01", "{kind: CSINode, spec: {drivers: []}}"}
	plugin := fixture{"/apis/apps/v1/namespaces/longhorn-system/daemonsets/csi-plugin", `
kind: DaemonSet
spec: {selector: {matchLabels: {app: csi}},
  template: {spec: {volumes: [{hostPath: {path: /var/lib/kubelet/plugins/driver.longhorn.io}}]}}}
status: {observedGeneration: 1, desiredNumberScheduled: 1}`}
	runDiagnoses(t, "storage_class", map[string]cty.Value{"name": str("longhorn")}, []diagnosed{
		{
			name: "no class", serves: serves,
			cause: "storageclass longhorn does not exist: it is not installed, or its operator has not " +
				"created it yet",
			look: "kubectl get storageclass",
		},
		{
			name: "no driver", serves: serves, objects: []fixture{class},
			cause: "csidriver driver.longhorn.io does not exist: its driver is not deployed yet",
		},
		{
			name: "a node without it", serves: serves, objects: []fixture{class, driver, bare, worker},
			cause: "csidriver driver.longhorn.io: not registered on 1 of 1 nodes: w-01; the driver's Pod " +
				"does not run there, or its registrar has not reached the kubelet",
			look:  "kubectl get csinodes -o yaml",
			files: []string{"objects/csinode/w-01.yaml", "objects/csidriver/driver.longhorn.io.yaml"},
		},
		{
			name: "the driver's own Pod", serves: serves, objects: []fixture{class, driver, bare, plugin, {
				"/api/v1/namespaces/longhorn-system/pods/csi-1", `
kind: Pod
metadata: {labels: {app: csi}}
spec: {nodeName: w-01}
status: {phase: Running, containerStatuses: [{name: plugin, restartCount: 3,
  state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 255}}}]}`,
			}},
			answers: map[string]answer{"/api/v1/namespaces/longhorn-system/pods/csi-1/log": {200,
				"iscsiadm: not found\n"}},
			cause: "container plugin of pod longhorn-system/csi-1 ended with exit code 255, 3 restarts " +
				"so far, last log line: iscsiadm: not found",
			look: "kubectl -n longhorn-system logs csi-1 --all-containers --previous",
		},
	})
}

func TestAMissingAddressIsExplained(t *testing.T) {
	pools := kind{"metallb.io/v1beta1", "IPAddressPool", "ipaddresspools", true}
	service := func(kind string) fixture {
		return fixture{"/api/v1/namespaces/traefik/services/traefik", "{kind: Service, spec: {type: " + kind +
			"}}"}
	}
	runDiagnoses(t, "load_balancer", map[string]cty.Value{"namespace": str("traefik"),
		"service": str("traefik")}, []diagnosed{
		{
			name: "MetalLB's words", serves: []kind{pools},
			objects: []fixture{service("LoadBalancer"), eventOn("traefik", "Service", "traefik",
				"AllocationFailed", `Failed to allocate IP for "traefik/traefik": no available IPs`)},
			cause: `service traefik/traefik gets no address: Failed to allocate IP for "traefik/traefik": ` +
				`no available IPs`,
			look: "kubectl -n traefik describe service traefik",
		},
		{
			name: "no pool", serves: []kind{pools}, objects: []fixture{service("LoadBalancer")},
			cause: "MetalLB has no IPAddressPool to take an address from",
			look:  "kubectl get ipaddresspools.metallb.io -A",
		},
		{
			name: "no MetalLB", objects: []fixture{service("LoadBalancer")},
			cause: "the cluster has no MetalLB, so nothing assigns addresses to Services",
		},
		{
			name: "another type", objects: []fixture{service("ClusterIP")},
			cause: "service traefik/traefik: is of type ClusterIP, not LoadBalancer; only a Service of " +
				"type LoadBalancer gets an address",
		},
	})
}

func TestAnAddressWithoutAnAnswerIsExplained(t *testing.T) {
	const where = "/api/v1/namespaces/web/"
	service := fixture{where + "services/shop", `{kind: Service, metadata: {name: shop, namespace: web}, ` +
		`spec: {type: LoadBalancer, selector: {app: shop}, ports: [{protocol: TCP, port: 1}]}, status: ` +
		`{loadBalancer: {ingress: [{ip: 127.0.0.1}]}}}`}
	runDiagnoses(t, "load_balancer", map[string]cty.Value{"namespace": str("web"), "service": str("shop"),
		"answers": cty.True}, []diagnosed{
		{
			name: "no Pod", objects: []fixture{service},
			cause: "no Pod has the labels that service web/shop selects: app=shop",
		},
		{
			name: "its Pods are ready", objects: []fixture{service, {where + "pods/shop-0",
				`{kind: Pod, metadata: {name: shop-0, namespace: web, labels: {app: shop}}, status: ` +
					`{phase: Running, conditions: [{type: Ready, status: "True"}]}}`}},
			cause: "service web/shop: no answer at its address: 127.0.0.1:1: connection refused; no " +
				"endpoint of the Service is ready, the load balancer's health checks fail, or a firewall " +
				"or a missing route keeps this machine from the address",
			look: "kubectl -n web describe service shop",
		},
	})
}

func TestADefinitionIsExplained(t *testing.T) {
	names := cty.ListVal([]cty.Value{str("ipaddresspools.metallb.io")})
	runDiagnoses(t, "crd", map[string]cty.Value{"names": names}, []diagnosed{
		{
			name: "not there",
			cause: "customresourcedefinition ipaddresspools.metallb.io does not exist: its operator is " +
				"not installed, or was installed without its CRDs",
		},
		{
			name: "a name that is taken", objects: []fixture{{
				"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipaddresspools.metallb.io",
				`{kind: CustomResourceDefinition, status: {conditions: [{type: NamesAccepted, ` +
					`status: "False", reason: PluralConflict, message: is in use}]}}`,
			}},
			cause: "customresourcedefinition ipaddresspools.metallb.io: NamesAccepted is False: " +
				"PluralConflict: is in use; another definition uses its names",
			look: "kubectl describe crd ipaddresspools.metallb.io",
		},
	})
}

func TestASurveyFindsProblemsAnywhere(t *testing.T) {
	now := time.Now().UTC().Format(time.RFC3339)
	warning := func(name, message, at string) fixture {
		return fixture{"/api/v1/namespaces/shop/events/" + name, fmt.Sprintf(
			`{kind: Event, type: Warning, reason: Failed, message: %q, lastTimestamp: %q, `+
				`involvedObject: {kind: Job, name: setup}}`, message, at)}
	}
	for name, tt := range map[string]struct {
		objects []fixture
		cause   string
	}{
		"a Pod in trouble, and no other": {
			[]fixture{webPod(waitingFor("ErrImagePull", "no such host")),
				{"/api/v1/namespaces/shop/pods/done", "{kind: Pod, status: {phase: Succeeded}}"}},
			"image registry.test/web:1 of pod shop/web-1 cannot be pulled: no such host",
		},
		"a namespace that does not go": {
			[]fixture{{"/api/v1/namespaces/old", `
kind: Namespace
metadata: {deletionTimestamp: "2026-01-02T03:04:05Z"}
status: {conditions: [{type: NamespaceFinalizersRemaining, status: "True",
  message: "Some content in the namespace has finalizers
  remaining: longhorn.io in 3 resource instances"}]}`}},
			"namespace old is being deleted and cannot end: Some content in the namespace has finalizers " +
				"remaining: longhorn.io in 3 resource instances",
		},
		"a node": {
			[]fixture{{"/api/v1/nodes/w-01",
				`{kind: Node, status: {conditions: [{type: Ready, status: Unknown, ` +
					`reason: NodeStatusUnknown, message: Kubelet stopped posting node status.}]}}`}},
			"node w-01: its kubelet has stopped posting its status: the machine is off, cut off or out of " +
				"memory",
		},
		"nothing": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			f.kinds = everyCluster()
			for _, p := range append(tt.objects, warning("new", "it broke", now),
				warning("old", "long ago", "2020-01-02T03:04:05Z")) {
				f.add(t, p.at, p.object)
			}
			d := Survey(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()})
			diagnosed{cause: tt.cause, holds: map[string]string{"warnings.txt": "it broke",
				"events/all.txt": "long ago"}}.verify(t, f, d)
			if _, told := d.Files["pods/shop/done.log"]; told {
				t.Error("a Pod that is done is told")
			}
		})
	}
}
