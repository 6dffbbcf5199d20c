package behaviours_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	kustomizeAPI = "kustomize.toolkit.fluxcd.io/v1"
	sourceAPI    = "source.toolkit.fluxcd.io/v1"
	helmAPI      = "helm.toolkit.fluxcd.io/v2"
)

// common is what the behaviours share.
const common = `
apiVersion: v1
kind: Secret
metadata: { name: fleet, namespace: flux-system }
stringData: { username: git, password: token }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: vars, namespace: flux-system }
data: { color: green }
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: { name: fleet, namespace: flux-system }
spec:
  interval: 10m
  url: SERVER/me/fleet
  ref: { branch: main }
  secretRef: { name: fleet }
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: { name: charts, namespace: flux-system }
spec: { interval: 10m, url: SERVER/charts/charts }
`

// behaviour is a Kustomization of one folder of the repository, or another object, and what becomes of it.
type behaviour struct {
	name  string
	files map[string]string // of its folder
	spec  string            // more of the Kustomization's
	// object is in place of the Kustomization, of this kind.
	kind, object string
	want         string // a regular expression for readiness
	made, absent []string
	then         func(t *testing.T, p *plane, folder string) string
}

func (b behaviour) kindOr(kind string) string {
	if b.kind != "" {
		return b.kind
	}
	return kind
}

func (b behaviour) version() string {
	switch b.kind {
	case "HelmRelease":
		return helmAPI
	case "":
		return kustomizeAPI
	}
	return sourceAPI
}

func (b behaviour) text() string {
	if b.object != "" {
		return b.object
	}
	return `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: NAME, namespace: flux-system }
spec:
  interval: 10m
  retryInterval: 2s
  path: ./NAME
  prune: true
  sourceRef: { kind: GitRepository, name: fleet }
` + b.spec
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: \"" + name + "\", namespace: flux-system }\n"
}

const applied = "True ReconciliationSucceeded: Applied revision: main@sha1:X"

// encrypted has the form of what SOPS makes; nobody has a key for it.
const encrypted = `apiVersion: v1
kind: Secret
metadata: { name: hush, namespace: flux-system }
stringData: { password: "ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]" }
sops:
  age: [{ recipient: age1, enc: "x" }]
  lastmodified: "2026-01-01T00:00:00Z"
  mac: "ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]"
  version: 3.9.0
`

const idle = `apiVersion: apps/v1
kind: Deployment
metadata: { name: idle, namespace: flux-system }
spec:
  selector: { matchLabels: { app: idle } }
  template:
    metadata: { labels: { app: idle } }
    spec:
      nodeSelector: { nowhere: "true" }
      containers: [{ name: idle, image: idle }]
`

// late is the definition of a kind.
const late = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: lates.late.example.org }
spec:
  group: late.example.org
  scope: Namespaced
  names: { kind: Late, plural: lates }
  versions: [{ name: v1, served: true, storage: true, schema: { openAPIV3Schema: { type: object } } }]
`

// later applies what was missing, and expects what becomes of the Kustomization.
func later(text, want string, made ...string) func(*testing.T, *plane, string) string {
	return func(t *testing.T, p *plane, folder string) string {
		p.apply(t, text)
		p.until = time.Now().Add(patience)
		return p.differs(t, behaviour{name: filepath.Base(folder), want: want, made: made})
	}
}

// remove deletes a Kustomization.
func (p *plane) remove(t *testing.T, name string) {
	t.Helper()
	o := p.get(t, kustomizeAPI, "Kustomization", name)
	api, err := p.api(o.GroupVersionKind(), namespace)
	check(t, err)
	check(t, api.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func behaviours() []behaviour {
	return []behaviour{
		{name: "applies", files: map[string]string{"a.yaml": configMap("applied")}, want: applied,
			made: []string{"applied"}},
		{name: "leaves-out-what-sourceignore-has", files: map[string]string{"a.yaml": configMap("kept"),
			"b.yaml": configMap("left-out"), ".sourceignore": "b.yaml\n"}, want: applied,
			made: []string{"kept"}, absent: []string{"left-out"}},
		{name: "substitutes", files: map[string]string{"a.yaml": configMap("the-${color}-${size:=big}-one")},
			spec: "  postBuild: { substituteFrom: [{ kind: ConfigMap, name: vars }] }\n", want: applied,
			made: []string{"the-green-big-one"}},
		{name: "wants-its-variables", files: map[string]string{"a.yaml": configMap("unseen")},
			spec:   "  postBuild: { substituteFrom: [{ kind: ConfigMap, name: nobody }] }\n",
			want:   `False BuildFailed: .*substitute from 'ConfigMap/nobody' error: .*`,
			absent: []string{"unseen"}},
		{name: "path-is-missing", spec: "  targetNamespace: default\n",
			want: `False ArtifactFailed: kustomization path not found: stat .*/path-is-missing: ` +
				`no such file or directory`},
		{name: "needs-one-that-is-not-ready", files: map[string]string{"a.yaml": configMap("after")},
			spec: "  dependsOn: [{ name: path-is-missing }]\n", absent: []string{"after"},
			want: `False DependencyNotReady: dependency 'flux-system/path-is-missing' is not ready.*`},
		{name: "needs-one-that-is-ready", files: map[string]string{"a.yaml": configMap("in-order")},
			spec: "  dependsOn: [{ name: applies }]\n", made: []string{"in-order"}, want: applied},
		{name: "needs-one-that-is-absent", files: map[string]string{"a.yaml": configMap("never")},
			spec: "  dependsOn: [{ name: nobody }]\n", absent: []string{"never"},
			want: `False DependencyNotReady: dependency 'flux-system/nobody' not found: .*`},
		{name: "waits-in-vain", files: map[string]string{"a.yaml": idle},
			spec: "  wait: true\n  timeout: 3s\n",
			want: `False HealthCheckFailed: health check failed after .*timeout waiting for: ` +
				`\[Deployment/flux-system/idle status: 'InProgress'.*\]`},
		{name: "checks-what-nobody-makes", files: map[string]string{"a.yaml": configMap("checked")},
			spec: "  timeout: 3s\n  healthChecks: [{ apiVersion: v1, kind: ConfigMap, name: nobody, " +
				"namespace: flux-system }]\n",
			want: `False HealthCheckFailed: health check failed after .*timeout waiting for: ` +
				`\[ConfigMap/flux-system/nobody status: 'NotFound'.*\]`,
			made: []string{"checked"}},
		{name: "kind-is-unknown", files: map[string]string{
			"a.yaml": "apiVersion: nobody.io/v1\nkind: Thing\n" +
				"metadata: { name: x, namespace: flux-system }\n"},
			want: `False ReconciliationFailed: Thing/flux-system/x dry-run failed: ` +
				`no matches for kind "Thing" in version "nobody.io/v1"\s*`},
		{name: "manifest-is-broken", files: map[string]string{"a.yaml": "kind: [\n"},
			want: `False BuildFailed: .*`},
		{name: "is-encrypted", files: map[string]string{"a.yaml": encrypted},
			want: applied}, // see differences
		{name: "lacks-its-key", files: map[string]string{"a.yaml": encrypted},
			spec: "  decryption: { provider: sops, secretRef: { name: sops-age } }\n",
			want: `False BuildFailed: .*sops-age.*not found.*`},
		{name: "prunes", files: map[string]string{"a.yaml": configMap("stays"), "b.yaml": configMap("goes")},
			want: applied, made: []string{"stays", "goes"},
			then: func(t *testing.T, p *plane, folder string) string {
				check(t, os.Remove(filepath.Join(folder, "b.yaml")))
				p.request(t, "prunes")
				return removed(t, p, "goes")
			}},
		{name: "takes-all-with-it", files: map[string]string{"a.yaml": configMap("taken")}, want: applied,
			made: []string{"taken"}, then: func(t *testing.T, p *plane, _ string) string {
				p.remove(t, "takes-all-with-it")
				return removed(t, p, "taken")
			}},
		// Races: what was missing comes, or its owner goes, while Flux is at it.
		{name: "its-kind-comes-late", files: map[string]string{
			"a.yaml": "apiVersion: late.example.org/v1\nkind: Late\n" +
				"metadata: { name: late, namespace: flux-system }\n"},
			want: `False ReconciliationFailed: Late/flux-system/late dry-run failed: ` +
				`no matches for kind "Late" in version "late.example.org/v1"\s*`,
			then: later(late, applied)},
		{name: "its-dependency-comes-late", files: map[string]string{"a.yaml": configMap("then")},
			spec: "  dependsOn: [{ name: comes-late }]\n",
			want: `False DependencyNotReady: dependency 'flux-system/comes-late' not found: .*`,
			then: later(strings.NewReplacer("./NAME", "./applies", "NAME", "comes-late").Replace(
				behaviour{}.text()), applied, "then")},
		{name: "its-variables-come-late", files: map[string]string{"a.yaml": configMap("in-${late}")},
			spec: "  postBuild: { substituteFrom: [{ kind: ConfigMap, name: late }] }\n",
			want: `False BuildFailed: .*substitute from 'ConfigMap/late' error: .*`,
			then: later(configMap("late")+"data: { late: time }\n", applied, "in-time")},
		{name: "goes-while-it-waits", files: map[string]string{"a.yaml": configMap("short-lived"),
			"b.yaml": strings.ReplaceAll(idle, "idle", "never")},
			spec: "  wait: true\n  timeout: 10s\n", made: []string{"short-lived"},
			want: `(Unknown Progressing|False HealthCheckFailed): .*`, // Flux removes nothing while it waits
			then: func(t *testing.T, p *plane, _ string) string {
				p.remove(t, "goes-while-it-waits")
				return removed(t, p, "short-lived")
			}},
		{name: "address-is-wrong", kind: "GitRepository",
			object: fmt.Sprintf(gitRepository, "nobody", "main"),
			want:   `False GitOperationFailed: failed to checkout and determine revision: unable to clone.*`},
		{name: "branch-is-missing", kind: "GitRepository",
			object: fmt.Sprintf(gitRepository, "fleet", "next"),
			want: `False GitOperationFailed: failed to checkout and determine revision: ` +
				`unable to clone.*refs/heads/next.*`},
		{name: "installs", kind: "HelmRelease", object: fmt.Sprintf(helmRelease, "*"),
			want: `True InstallSucceeded: Helm install succeeded for release ` +
				`flux-system/installs.v1 with chart traefik@.*`},
		{name: "version-is-missing", kind: "HelmRelease", object: fmt.Sprintf(helmRelease, "99.0.0"),
			want: `False SourceNotReady: HelmChart 'flux-system/flux-system-version-is-missing' is not ` +
				`ready: invalid chart reference: failed to get chart version for remote reference: ` +
				`no 'traefik' chart with version matching '99.0.0' found`},
		// Last: Flux would have had time for it.
		{name: "is-suspended", files: map[string]string{"a.yaml": configMap("suspended")},
			spec: "  suspend: true\n",
			want: "none", absent: []string{"suspended"}},
	}
}

const gitRepository = `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: { name: NAME, namespace: flux-system }
spec:
  interval: 10m
  url: SERVER/me/%s
  ref: { branch: %s }
  secretRef: { name: fleet }
`

const helmRelease = `
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: { name: NAME, namespace: flux-system }
spec:
  interval: 10m
  chart: { spec: { chart: traefik, version: "%s", sourceRef: { kind: HelmRepository, name: charts } } }
`

// differences are those of the double, with their reasons.
func differences() map[string]string {
	return map[string]string{
		"is-encrypted": "kustomize-controller v1.9.4 loses SOPS' fields of a Secret before it looks for " +
			"them, and applies the Secret encrypted; the double refuses it, as Flux documents it",
	}
}
