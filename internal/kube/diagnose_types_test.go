package kube

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/kube/diagnose"
)

func TestEveryTypeOfGateExplainsItself(t *testing.T) {
	for _, kind := range GateTypes() {
		if !diagnose.Explains(kind.Name) {
			t.Errorf("a closed gate %s explains nothing: add it to diagnose.explanations", kind.Name)
		}
	}
}

const metallbService = `
kind: Service
spec: {selector: {app: metallb, component: controller}}
`

func metallbPod(ready string) fixture {
	return fixture{"/api/v1/namespaces/metallb-system/pods/controller-1", `
kind: Pod
metadata: {labels: {app: metallb, component: controller}}
spec: {nodeName: worker-01}
status: {phase: Running, conditions: [{type: Ready,
  status: "` + ready + `"}], containerStatuses: [{name: controller, ready: ` +
		ready + `, restartCount: 0, state: {running: {}}}]}`}
}

func slicePut(ready string) fixture {
	return fixture{"/apis/discovery.k8s.io/v1/namespaces/metallb-system/endpointslices/webhook-x", `
kind: EndpointSlice
metadata: {labels: {kubernetes.io/service-name: webhook}}
endpoints: [{addresses: [10.244.0.5], conditions: {ready: ` + ready + `}}]`}
}

func TestAServiceWithoutEndpointsIsExplained(t *testing.T) {
	service := fixture{"/api/v1/namespaces/metallb-system/services/webhook", metallbService}
	space := fixture{"/api/v1/namespaces/metallb-system", "kind: Namespace"}
	runDiagnoses(t, "endpoint_slice", map[string]cty.Value{"namespace": str("metallb-system"),
		"service": str("webhook")}, []diagnosed{
		{
			name: "a Pod whose probe fails", objects: []fixture{
				service, slicePut("false"), metallbPod("false"),
				eventOn("metallb-system", "Pod", "controller-1", "Unhealthy",
					"Readiness probe failed: connection refused"),
			},
			answers: map[string]answer{"/api/v1/namespaces/metallb-system/pods/controller-1/log": {200,
				"starting\nwaiting for the certificate\n"}},
			cause: "container controller of pod metallb-system/controller-1 runs but is not ready: " +
				"Readiness probe failed: connection refused",
			look: "kubectl -n metallb-system describe pod controller-1",
			files: []string{"objects/service/metallb-system/webhook.yaml",
				"objects/endpointslice/metallb-system/webhook-x.yaml"},
			holds: map[string]string{"pods/metallb-system/controller-1.log": "--- container " +
				"controller\nstarting\nwaiting for the certificate\n"},
		},
		{
			name: "no Pod at all", objects: []fixture{service},
			cause: "no Pod has the labels that service metallb-system/webhook selects: " +
				"app=metallb,component=controller",
			look: "kubectl -n metallb-system describe service webhook",
		},
		{
			name:   "a Deployment that may not make its Pods",
			serves: []kind{{"apps/v1", "Deployment", "deployments", true}},
			objects: []fixture{
				service,
				{"/apis/apps/v1/namespaces/metallb-system/deployments/controller", `
kind: Deployment
spec: {selector: {matchLabels: {app: metallb}}, template: {metadata: {labels: {app: metallb,
  component: controller}}}}
status: {observedGeneration: 1}`},
				eventOn("metallb-system", "ReplicaSet", "controller-7f", "FailedCreate",
					`serviceaccount "controller" not found`),
			},
			cause: `deployment metallb-system/controller: its ServiceAccount does not exist: ` +
				`serviceaccount "controller" not found`,
		},
		{name: "no Service", objects: []fixture{space},
			cause: "service metallb-system/webhook does not exist: it was never created, or it was deleted"},
	})
}

func TestAWebhookIsExplained(t *testing.T) {
	configuration := func(bundle string) fixture {
		return fixture{"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/metallb", `
kind: ValidatingWebhookConfiguration
webhooks: [{name: pool.metallb.io, clientConfig: {caBundle: ` + bundle +
			`, service: {namespace: metallb-system, name: webhook}}}]`}
	}
	good := base64.StdEncoding.EncodeToString([]byte(authority(t)))
	service := fixture{"/api/v1/namespaces/metallb-system/services/webhook", metallbService}
	pools := "/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools"
	fails := func(message string) map[string]answer {
		return map[string]answer{"POST " +
			pools: failure(500, "InternalError",
			`Internal error occurred: failed calling webhook "pool.metallb.io": failed to call webhook: `+
				`Post "https://webhook.metallb-system.svc:443/validate?timeout=10s": `+message)}
	}
	probes := map[string]cty.Value{
		"configuration": str("metallb"), "namespace": str("metallb-system"),
		"accepts": str("{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: " +
			"castle-probe}}"),
	}
	serves := []kind{{"metallb.io/v1beta1", "IPAddressPool", "ipaddresspools", true}}
	ready := []fixture{configuration(good), service, slicePut("true"), metallbPod("True")}
	runDiagnoses(t, "webhook", probes, []diagnosed{
		{
			name: "not listening yet", serves: serves, objects: ready,
			answers: fails("dial tcp 10.96.0.7:443: connect: connection refused"),
			cause: "webhook configuration metallb: its Pod counts as ready although its webhook does not " +
				"listen yet; it may still wait for its certificate",
			look: "kubectl -n metallb-system logs -l app=metallb,component=controller --all-containers " +
				"--tail=100",
			holds: map[string]string{
				"webhook/metallb.txt": `dry run of ipaddresspool metallb-system/castle-probe: ` +
					`failed calling webhook "pool.metallb.io": failed to call ` +
					`webhook: Post "https://webhook.metallb-system.svc:443/validate?timeout=10s": dial ` +
					`tcp 10.96.0.7:443: connect: connection refused`,
				"objects/validatingwebhookconfiguration/metallb.yaml": `caBundle: (certificate of "`,
			},
		},
		{
			name: "another authority", serves: serves, objects: ready,
			answers: fails("tls: failed to verify certificate: x509: certificate signed by unknown " +
				"authority"),
			cause: "webhook configuration metallb: its caBundle is not of the CA that signed its server's " +
				"certificate: one of them was renewed alone",
		},
		{
			name: "an expired certificate", serves: serves, objects: ready,
			answers: fails("tls: failed to verify certificate: x509: certificate has expired or is not " +
				"yet valid"),
			cause: "webhook configuration metallb: the certificate of its server, or the CA that signed " +
				"it, has expired",
		},
		{
			name: "no handler", serves: serves, objects: ready,
			answers: map[string]answer{"POST " +
				pools: failure(500, "InternalError",
				`Internal error occurred: failed calling webhook "pool.metallb.io": the server could not `+
					`find the requested resource`)},
			cause: "webhook configuration metallb: its server listens and has no handler at the " +
				"configuration's path yet",
		},
		{
			name: "nobody has put an authority in", serves: serves,
			objects: []fixture{configuration(`""`), service, slicePut("true"), metallbPod("True")},
			cause: "webhook configuration metallb: pool.metallb.io has no caBundle: certificate " +
				"controller has not injected the CA yet; its certificate controller does not run, or " +
				"waits for its certificate",
		},
		{
			name: "no configuration",
			cause: "validatingwebhookconfiguration metallb does not exist: it is not installed, or its " +
				"operator has not created it yet",
		},
	})
}

func TestNodesAreExplained(t *testing.T) {
	node := func(name, reason, message string) fixture {
		return fixture{"/api/v1/nodes/" + name,
			`{kind: Node, status: {conditions: [{type: Ready, status: "False", reason: ` + reason +
				`, message: '` + message + `'}]}}`}
	}
	runDiagnoses(t, "nodes", map[string]cty.Value{"count": num(2)}, []diagnosed{
		{
			name: "no network plugin", objects: []fixture{node("cp-01", "KubeletNotReady",
				"container runtime network not ready: cni plugin not initialized"),
				node("w-01", "KubeletNotReady", "")},
			cause: "node cp-01: its network plugin (CNI) has not written its configuration: the plugin's " +
				"Pod does not run there yet",
			look: "kubectl describe node cp-01",
			holds: map[string]string{"nodes.txt": "cp-01  Ready  False  KubeletNotReady  container " +
				"runtime network not ready: cni plugin not initialized"},
		},
		{
			name: "the network plugin's own Pod, and not who waits for it", objects: []fixture{
				node("cp-01", "KubeletNotReady", "cni plugin not initialized"),
				{"/api/v1/namespaces/kube-system/pods/coredns",
					`{kind: Pod, status: {conditions: [{type: PodScheduled, status: "False", ` +
						`message: no node}]}}`},
				{"/api/v1/namespaces/kube-system/pods/flannel",
					`{kind: Pod, metadata: {ownerReferences: [{kind: DaemonSet, name: flannel}]}, ` +
						`status: {phase: Pending, initContainerStatuses: [{name: cni, ` +
						`image: "ghcr.test/cni:1", state: {waiting: {reason: ErrImagePull, ` +
						`message: no such host}}}]}}`},
			},
			cause: "image ghcr.test/cni:1 of pod kube-system/flannel cannot be pulled: no such host",
		},
		{
			name: "missing machines", objects: []fixture{{"/api/v1/nodes/cp-01",
				`{kind: Node, status: {conditions: [{type: Ready, status: "True"}]}}`}},
			cause: "1 of 2 nodes registered: only cp-01; the missing machines do not run, do not reach " +
				"the API, or Talos on them waits for its configuration",
			look: "kubectl describe nodes",
		},
	})
}

func TestAConditionIsExplained(t *testing.T) {
	store := map[string]cty.Value{"api_version": str("external-secrets.io/v1"),
		"kind": str("ClusterSecretStore"), "name": str("infisical")}
	serves := []kind{{"external-secrets.io/v1", "ClusterSecretStore", "clustersecretstores", false}}
	at := "/apis/external-secrets.io/v1/clustersecretstores/infisical"
	definition := func(status string) fixture {
		at := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" +
			"clustersecretstores.external-secrets.io"
		return fixture{at, `
kind: CustomResourceDefinition
spec: {group: external-secrets.io, names: {kind: ClusterSecretStore}, versions: [{name: v1beta1,
  served: true}]}
status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "` + status + `"}]}`}
	}
	definitions := []kind{{"apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions",
		false}}
	runDiagnoses(t, "condition", store, []diagnosed{
		{
			name: "its own words", serves: serves,
			objects: []fixture{{at, `{kind: ClusterSecretStore, status: {conditions: [{type: Ready, ` +
				`status: "False", reason: InvalidProviderConfig, message: "401: login failed"}]}}`}},
			cause: "clustersecretstore infisical reports: InvalidProviderConfig: 401: login failed",
			look:  "kubectl describe clustersecretstore.external-secrets.io infisical",
			files: []string{"objects/clustersecretstore/infisical.yaml"},
		},
		{
			name: "nobody looked", serves: serves, objects: []fixture{{at, `{kind: ClusterSecretStore}`}},
			cause: "clustersecretstore infisical: its controller has not seen it yet: its operator may be " +
				"down",
		},
		{name: "not there", serves: serves,
			cause: "clustersecretstore infisical does not exist: it was never created, or it was deleted"},
		{
			name: "no definition", serves: definitions,
			cause: "there is no CustomResourceDefinition for ClusterSecretStore: its operator is not " +
				"installed, or was installed without its CRDs",
		},
		{
			name: "another version", serves: definitions, objects: []fixture{definition("True")},
			cause: "customresourcedefinition clustersecretstores.external-secrets.io: serves v1beta1, not " +
				"v1; the operator has another version than its objects",
		},
		{
			name: "not established", serves: definitions, objects: []fixture{definition("False")},
			cause: "customresourcedefinition clustersecretstores.external-secrets.io: Established is " +
				"False; the API server has not finished installing it",
		},
	})
}

func TestFluxIsExplainedByWhatBlocksTheRest(t *testing.T) {
	serves := []kind{
		{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
		{"apps/v1", "Deployment", "deployments", true},
	}
	kustomization := func(name, needs, ready, why string) fixture {
		return fixture{"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/" + name,
			fmt.Sprintf(`
kind: Kustomization
metadata: {generation: 1}
spec: {dependsOn: [%s], sourceRef: {kind: GitRepository, name: root}}
status: {observedGeneration: 1, lastAppliedRevision: main@1, conditions: [{type: Ready, status: %q,
  %s}]}`, needs, ready, why)}
	}
	source := fixture{"/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories/root", `
kind: GitRepository
metadata: {generation: 1}
status: {observedGeneration: 1, artifact: {revision: main@1}, conditions: [{type: Ready, status: "True"}]}`}
	waits := `reason: DependencyNotReady, message: "dependency is not ready"`
	runDiagnoses(t, "flux", map[string]cty.Value{}, []diagnosed{
		{
			name: "the end of a chain", serves: serves, objects: []fixture{
				source, kustomization("apps", "{name: configs}", "False", waits),
				kustomization("configs", "{name: operators}", "False", waits),
				kustomization("operators", "", "False",
					`reason: ReconciliationFailed, message: "dry-run failed: no matches for kind Vault"`),
			},
			cause: "kustomization flux-system/operators blocks kustomization flux-system/apps, " +
				"kustomization flux-system/configs: ReconciliationFailed: dry-run failed: no matches for " +
				"kind Vault",
			look: "kubectl -n flux-system describe kustomization operators",
		},
		{
			name: "the workload that a health check waits for", serves: serves, objects: []fixture{
				source, kustomization("operators", "", "False",
					`reason: HealthCheckFailed, message: "timeout waiting for: [Deployment/shop/web `+
						`status: 'InProgress']"`),
				{"/apis/apps/v1/namespaces/shop/deployments/web", webDeployment},
				webPod(waitingFor("ErrImagePull", "no such host")),
			},
			cause: "image registry.test/web:1 of pod shop/web-1 cannot be pulled: no such host",
		},
		{
			name: "frozen behind a ready dependency", serves: serves,
			objects: []fixture{source, kustomization("apps", "{name: operators}", "False", waits),
				kustomization("operators", "", "True", "reason: ReconciliationSucceeded")},
			cause: "kustomization flux-system/apps waits for its dependencies although they are ready: " +
				"Flux checks it again only after its interval",
		},
		{
			name: "a source that cannot be read", serves: serves, objects: []fixture{
				{source.at, `{kind: GitRepository, metadata: {generation: 1}, ` +
					`status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", ` +
					`reason: GitOperationFailed, message: authentication required}]}}`},
				kustomization("apps", "", "False", "reason: ArtifactFailed, message: no artifact"),
			},
			cause: "gitrepository flux-system/root: GitOperationFailed: authentication required",
			look:  "kubectl -n flux-system describe gitrepository root",
		},
		{
			name: "suspended", serves: serves, objects: []fixture{source, {
				"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/apps",
				"{kind: Kustomization, spec: {suspend: true}}",
			}},
			cause: "kustomization flux-system/apps is suspended",
			look: `kubectl -n flux-system patch kustomization apps --type merge -p ` +
				`'{"spec":{"suspend":false}}'`,
		},
	})
}

func TestAnObjectDeletedFromAReleaseIsRecognised(t *testing.T) {
	manifest := "kind: Service\nmetadata:\n  name: web\n---\n# Source: " +
		"web/templates/web.yaml\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  " +
		"namespace: shop\n"
	revision := func(compress bool) fixture {
		written, err := json.Marshal(map[string]any{"name": "shop", "manifest": manifest,
			"config": map[string]any{"password": "s3cret-of-the-chart"}})
		if err != nil {
			t.Fatal(err)
		}
		if compress {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			z.Write(written) //nolint:errcheck // a Buffer takes everything
			z.Close()        //nolint:errcheck // likewise
			written = b.Bytes()
		}
		inner := base64.StdEncoding.EncodeToString(written)
		return fixture{"/api/v1/namespaces/shop/secrets/sh.helm.release.v1.shop.v3", `
type: helm.sh/release.v1
metadata: {labels: {owner: helm, name: shop, status: deployed, version: "3"}}
data: {release: ` + base64.StdEncoding.EncodeToString([]byte(inner)) + `}`}
	}
	shop := fixture{"/api/v1/namespaces/shop", "kind: Namespace"}
	runDiagnoses(t, "workload", map[string]cty.Value{"kind": str("Deployment"), "namespace": str("shop"),
		"name": str("web")}, []diagnosed{
		{
			name: "compressed", objects: []fixture{shop, revision(true)}, release: "shop/shop",
			look: "helm -n shop rollback shop 3",
			cause: "deployment shop/web is part of the Helm release shop/shop, which is installed: it was " +
				"deleted since, and Helm and Terraform do not notice that",
		},
		{
			name: "plain", objects: []fixture{shop, revision(false)}, release: "shop/shop",
			cause: "deployment shop/web is part of the Helm release shop/shop, which is installed: it was " +
				"deleted since, and Helm and Terraform do not notice that",
		},
		{
			name: "another one's", objects: []fixture{shop, revision(true)},
			cause: "deployment shop/other does not exist: it was never created, or it was deleted",
			arguments: map[string]cty.Value{"kind": str("Deployment"), "namespace": str("shop"),
				"name": str("other")},
		},
	})
}

func TestAControlPlaneThatAloneIsDownIsNamed(t *testing.T) {
	f := newFakeAPI(t)
	f.kinds = everyCluster()
	f.answer("/readyz", 200, "ok")
	host := refusing(t)
	d := newGate(t, "kubernetes_api", f.kubeconfig(),
		map[string]cty.Value{"endpoints": cty.ListVal([]cty.Value{str(host)})}).Diagnose(t.Context(), nil)
	want := "a machine has the address " + host +
		", but no kube-apiserver listens there: it is not up yet, or it does not stay up"
	if d.Cause != want || d.Look != "talosctl -n 127.0.0.1 containers -k" {
		t.Errorf("got %q, %q", d.Cause, d.Look)
	}
	if string(d.Files["readyz.txt"]) != "ok" {
		t.Errorf("files: %q", d.Files)
	}
}
