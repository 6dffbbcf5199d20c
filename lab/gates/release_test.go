package gates_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/repo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/release"
	"github.com/ephemeral-castle/castle/lab/charts"
)

// helm is the real Helm on the control plane.
func (p *plane) helm(t testing.TB, namespace string) *action.Configuration {
	t.Helper()
	t.Setenv("KUBECACHEDIR", t.TempDir())
	settings := cli.New()
	settings.KubeConfig = filepath.Join(t.TempDir(), "kubeconfig")
	check(t, os.WriteFile(settings.KubeConfig, p.cluster.Kubeconfig, 0o600))
	settings.SetNamespace(namespace)
	c := new(action.Configuration)
	check(t, c.Init(settings.RESTClientGetter(), namespace, "secret", func(string, ...any) {}))
	return c
}

// installs has Helm install a chart, and uninstall it when the test ends.
func (p *plane) installs(t testing.TB, namespace string, c *chart.Chart, values map[string]any) {
	t.Helper()
	with := p.helm(t, namespace)
	install := action.NewInstall(with)
	install.ReleaseName, install.Namespace = c.Name(), namespace
	_, err := install.Run(c, values)
	check(t, err)
	t.Cleanup(func() {
		if _, err := action.NewUninstall(with).Run(c.Name()); err != nil {
			t.Error(err)
		}
	})
}

// chartOf is a chart with one template.
func chartOf(name, template string) *chart.Chart {
	return &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: name, Version: "1.0.0"},
		Templates: []*chart.File{{Name: "templates/all.yaml", Data: []byte(template)}}}
}

// differs expects these differences of a release.
func (p *plane) differs(t testing.TB, namespace, name string, want ...string) {
	t.Helper()
	found, err := release.Differences(t.Context(), p.target(), namespace, name)
	check(t, err)
	expects(t, found, namespace, want)
}

// restores expects that these objects of a release are restored, and that none differs afterwards.
func (p *plane) restores(t testing.TB, namespace, name string, want ...string) {
	t.Helper()
	found, err := release.Restore(t.Context(), p.target(), namespace, name)
	check(t, err)
	expects(t, found, namespace, want)
	p.differs(t, namespace, name)
}

func expects(t testing.TB, found []release.Difference, namespace string, want []string) {
	t.Helper()
	var got []string
	for _, d := range found {
		text := d.Object.String() + ": " + strings.Join(d.Paths, ", ")
		if d.Absent {
			text = d.Object.String() + " is absent"
		}
		got = append(got, strings.ReplaceAll(text, namespace, "NAMESPACE"))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("differences:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAFreshReleaseOfEachChartHasNoDifference(t *testing.T) {
	p := control(t)
	all, err := charts.New(charts.Options{Speed: 1000})
	check(t, err)
	for _, at := range []struct{ repository, chart string }{
		{"https://metallb.github.io/metallb", "metallb"},
		{"https://helm.cilium.io", "cilium"},
		{"https://charts.longhorn.io", "longhorn"},
		{"https://charts.external-secrets.io", "external-secrets"},
		{"https://fluxcd-community.github.io/helm-charts", "flux2"},
		{"https://charts.hetzner.cloud", "hcloud-cloud-controller-manager"},
		{"https://charts.hetzner.cloud", "hcloud-csi"},
		{"https://traefik.github.io/charts", "traefik"},
		{"https://charts.jetstack.io", "cert-manager"},
		{"oci://registry.developers.crunchydata.com/crunchydata", "pgo"},
	} {
		t.Run(at.chart, func(t *testing.T) {
			host, folder, _ := strings.Cut(at.repository[strings.Index(at.repository, "://")+3:], "/")
			if folder != "" {
				folder = "/" + folder
			}
			get := func(path string) []byte {
				w := httptest.NewRecorder()
				all.Handler(host).ServeHTTP(w, httptest.NewRequest("GET", folder+path, nil))
				if w.Code != 200 {
					t.Fatalf("GET %s%s: %d", folder, path, w.Code)
				}
				return w.Body.Bytes()
			}
			var index repo.IndexFile
			check(t, yaml.Unmarshal(get("/index.yaml"), &index))
			c, err := loader.LoadArchive(bytes.NewReader(get("/" + index.Entries[at.chart][0].URLs[0])))
			check(t, err)
			namespace := p.namespace(t)
			p.installs(t, namespace, c, map[string]any{"installCRDs": true,
				"crds": map[string]any{"enabled": true}})
			objects, err := release.Objects(t.Context(), p.target(), namespace, at.chart)
			check(t, err)
			if len(objects) < 3 {
				t.Errorf("the chart has only %v", objects)
			}
			p.differs(t, namespace, at.chart)
		})
	}
}

// odd is a manifest as charts have it: values that the API server writes in another form, empty and null
// fields, a list of objects, objects of other namespaces, a webhook and a definition with a bundle.
const odd = `
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
  metadata: {name: plain, creationTimestamp: null, labels: null}
  stringData: {password: hunter2}
  type: Opaque
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: second, namespace: default}
  data: {mode: "on", empty: ""}
---
# a document with nothing but a comment
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {}}
spec:
  selector: {matchLabels: {app: web}}
  strategy: {}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec:
      nodeSelector: {}
      tolerations: []
      volumes: [{name: scratch, emptyDir: {}}]
      containers:
      - name: web
        image: web:1
        ports: [{containerPort: 80}]
        resources: {requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 2}}
        env: [{name: MODE, value: a}, {name: NOTHING}]
        readinessProbe: {httpGet: {path: /, port: 80}}
      - {name: side, image: side:1}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE-odd}
rules: []
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: all}
spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  replicas: 0
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec: {containers: [{name: store, image: store:1}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  ttlSecondsAfterFinished: 0
  template: {spec: {restartPolicy: Never, containers: [{name: once, image: once:1}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAMESPACE-odd}
webhooks:
- name: odd.example.org
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  clientConfig: {caBundle: Cg==, service: {namespace: default, name: odd, path: /odd}}
  rules: [{apiGroups: [odd.example.org], apiVersions: [v1], operations: [CREATE], resources: [odds]}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: odds.odd.example.org, creationTimestamp: null}
spec:
  group: odd.example.org
  names: {kind: Odd, plural: odds}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              caBundle: {type: string}
              addresses: {type: array, items: {type: string}}
              level: {type: integer, default: 3}
status: {acceptedNames: {kind: "", plural: ""}, conditions: [], storedVersions: []}
`

// oddOnes installs the manifest odd as a release, and a release with an object of its kind.
func (p *plane) oddOnes(t testing.TB) (namespace string) {
	t.Helper()
	namespace = p.namespace(t)
	p.installs(t, namespace, chartOf("odd", strings.ReplaceAll(odd, "NAMESPACE", namespace)), nil)
	opens(t, p.gate(t, "crd", args{"names": texts("odds.odd.example.org")}))
	p.installs(t, namespace, chartOf("kind", "{apiVersion: odd.example.org/v1, kind: Odd, "+
		"metadata: {name: one}, spec: {caBundle: own, addresses: [a-b]}}"), nil)
	return namespace
}

func TestEveryChangedFieldOfAReleaseIsFoundAndRestored(t *testing.T) {
	p := control(t)
	namespace := p.oddOnes(t)
	p.differs(t, namespace, "odd")
	p.differs(t, namespace, "kind")
	const (
		deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NAMESPACE}}`
		secret     = `{apiVersion: v1, kind: Secret, metadata: {name: plain, namespace: NAMESPACE}}`
		policy     = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, ` +
			`metadata: {name: all, namespace: NAMESPACE}}`
		role = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, ` +
			`metadata: {name: NAMESPACE-odd}}`
		store   = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: store, namespace: NAMESPACE}}`
		webhook = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, ` +
			`metadata: {name: NAMESPACE-odd}}`
		definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, ` +
			`metadata: {name: odds.odd.example.org}}`
		one       = `{apiVersion: odd.example.org/v1, kind: Odd, metadata: {name: one, namespace: NAMESPACE}}`
		container = "/spec/template/spec/containers/0"
	)
	for _, c := range []struct{ object, patch, want string }{
		{deployment, `{"op": "replace", "path": "` + container + `/image", "value": "other:2"}`,
			"deployment NAMESPACE/web: spec.template.spec.containers[web].image"},
		{deployment,
			`{"op": "replace", "path": "` + container + `/resources/requests/memory", "value": "2Gi"}`,
			"deployment NAMESPACE/web: spec.template.spec.containers[web].resources.requests.memory"},
		{deployment, `{"op": "replace", "path": "` + container + `/env/0/value", "value": "hunter3"}`,
			"deployment NAMESPACE/web: spec.template.spec.containers[web].env[MODE].value"},
		{deployment, `{"op": "remove", "path": "/spec/template/spec/containers/1"}`,
			"deployment NAMESPACE/web: spec.template.spec.containers[side]"},
		{deployment, `{"op": "remove", "path": "/metadata/annotations/meta.helm.sh~1release-name"}`,
			"deployment NAMESPACE/web: metadata.annotations[meta.helm.sh/release-name]"},
		{secret, `{"op": "replace", "path": "/data/password", "value": "aHVudGVyMw=="}`,
			"secret NAMESPACE/plain: data.password"},
		{policy, `{"op": "remove", "path": "/spec/ingress/0/from/0/namespaceSelector"}, ` +
			`{"op": "add", "path": "/spec/ingress/0/from/0/podSelector", "value": {}}`,
			"networkpolicy NAMESPACE/all: spec.ingress"},
		{role, `{"op": "add", "path": "/rules", "value": ` +
			`[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}`,
			"clusterrole NAMESPACE-odd: rules"},
		{store, `{"op": "replace", "path": "/spec/replicas", "value": 1}`,
			"statefulset NAMESPACE/store: spec.replicas"},
		{webhook, `{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}`,
			"validatingwebhookconfiguration NAMESPACE-odd: webhooks[odd.example.org].failurePolicy"},
		{webhook, `{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cgo="}`, ""},
		{definition, `{"op": "remove", ` +
			`"path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/level"}`,
			"customresourcedefinition odds.odd.example.org: " +
				"spec.versions[v1].schema.openAPIV3Schema.properties.spec.properties.level"},
		{one, `{"op": "add", "path": "/spec/addresses/-", "value": "c-d"}`,
			"odd NAMESPACE/one: spec.addresses"},
		{one, `{"op": "replace", "path": "/spec/caBundle", "value": "other"}`,
			"odd NAMESPACE/one: spec.caBundle"},
		{one, `{"op": "replace", "path": "/spec/level", "value": 4}`, ""}, // the manifest leaves it to others
	} {
		name, want := "odd", []string{c.want}
		if c.object == one {
			name = "kind"
		}
		if c.want == "" {
			want = nil
		}
		o := objects(t, namespace, c.object)[0]
		_, err := p.at(t, o).Patch(t.Context(), o.GetName(), types.JSONPatchType, []byte("["+c.patch+"]"),
			metav1.PatchOptions{})
		check(t, err)
		p.differs(t, namespace, name, want...)
		p.restores(t, namespace, name, want...)
	}
	bundle := fmt.Sprint(p.live(t, namespace, webhook)["webhooks"])
	if !strings.Contains(bundle, "caBundle:Cgo=") {
		t.Errorf("the bundle of its controller is gone: %s", bundle)
	}
	p.upgrades(t, namespace, chartOf("odd", strings.ReplaceAll(odd, "NAMESPACE", namespace)))
	p.differs(t, namespace, "odd")
}

// live is the content of the manifest's object.
func (p *plane) live(t testing.TB, namespace, manifest string) map[string]any {
	t.Helper()
	o := objects(t, namespace, manifest)[0]
	found, err := p.at(t, o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
	check(t, err)
	return found.Object
}

// upgrades has Helm upgrade a release to a chart.
func (p *plane) upgrades(t testing.TB, namespace string, c *chart.Chart) {
	t.Helper()
	upgrade := action.NewUpgrade(p.helm(t, namespace))
	upgrade.Namespace = namespace
	_, err := upgrade.Run(c.Name(), c, nil)
	check(t, err)
}

func TestEachDeletedObjectOfAReleaseIsFoundAndRestored(t *testing.T) {
	p := control(t)
	namespace := p.oddOnes(t)
	all, err := release.Objects(t.Context(), p.target(), namespace, "odd")
	check(t, err)
	for _, o := range all {
		want := []string{strings.ReplaceAll(o.String(), namespace, "NAMESPACE") + " is absent"}
		switch o.Kind {
		case "Job":
			want = nil // it has ended and deleted itself
		case "CustomResourceDefinition":
			continue // below
		}
		p.remove(t, "", fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %q}}",
			o.APIVersion, o.Kind, o.Name, o.Namespace))
		p.differs(t, namespace, "odd", want...)
		p.restores(t, namespace, "odd", want...)
	}
	definition := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, ` +
		`metadata: {name: odds.odd.example.org}}`
	p.remove(t, "", definition)
	opens(t, gone(p.at(t, objects(t, "", definition)[0]), "odds.odd.example.org"))
	p.differs(t, namespace, "odd", "customresourcedefinition odds.odd.example.org is absent")
	p.differs(t, namespace, "kind", "odd one is absent") // nobody knows the scope of the kind
	p.restores(t, namespace, "odd", "customresourcedefinition odds.odd.example.org is absent")
	p.restores(t, namespace, "kind", "odd NAMESPACE/one is absent")
	p.upgrades(t, namespace, chartOf("odd", strings.ReplaceAll(odd, "NAMESPACE", namespace)))
	p.differs(t, namespace, "odd")
}

func TestARestoreRefusesTheObjectOfAnotherRelease(t *testing.T) {
	p := control(t)
	namespace := p.namespace(t)
	p.installs(t, namespace,
		chartOf("one", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}"), nil)
	p.change(t, namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: NAMESPACE, `+
		`annotations: {meta.helm.sh/release-name: two}}, data: {a: c}}`)
	p.differs(t, namespace, "one",
		"configmap NAMESPACE/m: data.a, metadata.annotations[meta.helm.sh/release-name]")
	_, err := release.Restore(t.Context(), p.target(), namespace, "one")
	if err == nil || !strings.HasSuffix(err.Error(), "it belongs to release "+namespace+"/two") {
		t.Errorf("the other release's object: %v", err)
	}
}

func TestAReleaseThatCannotBeComparedIsAnError(t *testing.T) {
	p := control(t)
	namespace := p.namespace(t)
	_, err := release.Differences(t.Context(), p.target(), namespace, "none")
	if gate.KindOf(err) != gate.NotFound {
		t.Errorf("a release that is not installed: %v", err)
	}
	// Each object has a difference, but a part of an apply is refused: a container has a port twice.
	p.installs(t, namespace, chartOf("twice", `
{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: "c:1", env: [{name: A, value: hunter2}, {name: A, value: hunter2}]}]
`), nil)
	p.differs(t, namespace, "twice")
	p.remove(t, namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: NAMESPACE}}`)
	p.change(t, namespace, `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: NAMESPACE, `+
		`annotations: {meta.helm.sh/release-namespace: other}}}`)
	found, err := release.Differences(t.Context(), p.target(), namespace, "twice")
	expects(t, found, namespace, []string{"configmap NAMESPACE/m is absent"})
	if text := fmt.Sprint(err); !strings.Contains(text, "pod "+namespace+"/p: ") ||
		strings.Contains(text, "hunter2") {
		t.Errorf("the error is %v", err)
	}
}

func (p *plane) target() gate.Target { return gate.Target{Kubeconfig: p.cluster.Kubeconfig} }
