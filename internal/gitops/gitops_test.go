package gitops_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/ephemeral-castle/castle/internal/gitops"
)

// repository lays out a repository's files.
func repository(t *testing.T, files string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(files)).Files {
		file := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shown prints each Kustomization of a repository, and the objects that it applies with their places.
func shown(all []*gitops.Kustomization) string {
	var b strings.Builder
	for _, k := range all {
		b.WriteString(k.Key.String() + " " + k.Path)
		for _, d := range k.DependsOn {
			b.WriteString(" after " + d.String())
		}
		if k.Elsewhere != "" {
			b.WriteString(" elsewhere: " + k.Elsewhere)
		}
		b.WriteString("\n")
		for _, o := range k.Objects {
			b.WriteString("  " + o.GetAPIVersion() + " " + o.GetKind() + " " + o.GetNamespace() + "/" +
				o.GetName() + " " + o.At.String() + "\n")
		}
	}
	return b.String()
}

const tree = `
-- clusters/blue/configs.yaml --
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: configs, namespace: flux-system }
spec:
  interval: 1h
  path: ./infrastructure/configs
  prune: true
  targetNamespace: elsewhere
  dependsOn: [{ name: controllers }]
  sourceRef: { kind: GitRepository, name: flux-system }
-- clusters/blue/controllers.yaml --
# The source is the root's.
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: controllers, namespace: flux-system }
spec:
  interval: 1h
  path: infrastructure/controllers/
  prune: true
  wait: true
  sourceRef: { kind: GitRepository, name: flux-system }
  patches:
    - patch: '[{ "op": "add", "path": "/metadata/labels", "value": { "patched": "yes" } }]'
      target: { kind: Namespace }
  postBuild:
    substitute: { inline: "3" }
    substituteFrom:
      - { kind: ConfigMap, name: cluster-vars }
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: foreign, namespace: flux-system }
spec:
  interval: 1h
  path: ./deploy
  prune: true
  sourceRef: { kind: OCIRepository, name: podinfo, namespace: apps }
-- clusters/blue/flux/gotk-sync.yaml --
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: flux-system, namespace: flux-system }
spec:
  interval: 1h
  path: ./clusters/blue
  prune: true
  sourceRef: { kind: GitRepository, name: flux-system }
-- clusters/blue/.github/workflows/test.yaml --
on: push
-- infrastructure/controllers/kustomization.yaml --
namePrefix: my-
labels: [{ pairs: { env: prod, path: none } }] # no files
resources:
  - traefik
  - one.yaml
configMapGenerator:
  - name: made
    namespace: traefik
    literals: ["url=https://example.com"]
-- infrastructure/controllers/one.yaml --

apiVersion: v1
kind: Service
metadata: { name: one, namespace: traefik, annotations: { ip: "${traefik_lb_ip}", other: "${other:=none}" } }
spec: { ports: [{ port: "${inline}" }] }
-- infrastructure/controllers/traefik/kustomization.yaml --
resources: [all.yaml]
-- infrastructure/controllers/traefik/all.yaml --
---
# The first.
apiVersion: v1
kind: Namespace
metadata:
  name: traefik
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: { name: traefik, namespace: traefik, labels: { kustomize.toolkit.fluxcd.io/substitute: disabled } }
spec: { interval: "${untouched}" }
-- infrastructure/configs/sub/issuer.yaml --
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: { name: own }
-- infrastructure/configs/readme.md --
# nothing
`

func TestReadFollowsKustomizations(t *testing.T) {
	dir := repository(t, tree)
	r, err := gitops.Read(gitops.Options{Folder: dir, Path: "./clusters/blue",
		Variables: func(kind, namespace, name string) (map[string]string, bool) {
			return map[string]string{"traefik_lb_ip": "192.0.2.240"}, kind+" "+namespace+"/"+
				name == "ConfigMap flux-system/cluster-vars"
		}})
	if err != nil {
		t.Fatal(err)
	}
	want := `flux-system/flux-system clusters/blue
  kustomize.toolkit.fluxcd.io/v1 Kustomization flux-system/configs clusters/blue/configs.yaml:1
  kustomize.toolkit.fluxcd.io/v1 Kustomization flux-system/controllers clusters/blue/controllers.yaml:2
  kustomize.toolkit.fluxcd.io/v1 Kustomization flux-system/foreign clusters/blue/controllers.yaml:19
  kustomize.toolkit.fluxcd.io/v1 Kustomization flux-system/flux-system clusters/blue/flux/gotk-sync.yaml:1
flux-system/configs infrastructure/configs after flux-system/controllers
  cert-manager.io/v1 Issuer elsewhere/own infrastructure/configs/sub/issuer.yaml:1
flux-system/controllers infrastructure/controllers
  v1 Namespace /traefik infrastructure/controllers/traefik/all.yaml:3
  helm.toolkit.fluxcd.io/v2 HelmRelease traefik/my-traefik infrastructure/controllers/traefik/all.yaml:8
  v1 Service traefik/my-one infrastructure/controllers/one.yaml:2
  v1 ConfigMap traefik/my-made-b6m879h4d7 infrastructure/controllers/kustomization.yaml
flux-system/foreign deploy elsewhere: OCIRepository apps/podinfo
`
	if got := shown(r); got != want {
		t.Errorf("got\n%s", got)
	}
	for _, o := range r[2].Objects {
		switch o.GetKind() {
		case "Namespace":
			if o.GetLabels()["patched"] != "yes" || o.GetAnnotations() != nil {
				t.Errorf("not patched, or with kustomize's own annotations: %v", o.Object)
			}
		case "HelmRelease":
			if interval := o.Object["spec"].(map[string]any)["interval"]; interval != "${untouched}" {
				t.Errorf("substituted where it is disabled: %v", interval)
			}
		case "Service":
			if a := o.GetAnnotations(); a["ip"] != "192.0.2.240" || a["other"] != "none" {
				t.Errorf("substituted %v", a)
			}
			if port :=
				o.Object["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"]; port != int64(
				3) {
				t.Errorf("a number in a variable became %T %v", port, port)
			}
		}
	}
}

// TestUnknownVariablesAreKept covers variables without a source; Flux refuses a missing source.
func TestUnknownVariablesAreKept(t *testing.T) {
	dir := repository(t, tree)
	r, err := gitops.Read(gitops.Options{Folder: dir, Path: "clusters/blue"})
	if err != nil {
		t.Fatal(err)
	}
	k := r[2]
	if a := k.Objects[2].GetAnnotations(); a["ip"] != "${traefik_lb_ip}" {
		t.Errorf("substituted %v", a)
	}
	objects, err := gitops.Build(dir, k)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Substitute(objects, nil, false); err == nil ||
		err.Error() != "substitute from 'ConfigMap/cluster-vars' error: it is not in namespace flux-system" {
		t.Errorf("without its ConfigMap: %v", err)
	}
	objects, err = k.Substitute(objects, func(string, string, string) (map[string]string, bool) {
		return nil, true
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	if a := objects[2].GetAnnotations(); a["ip"] != "" || a["other"] != "none" {
		t.Errorf("Flux makes nothing of what no source has, not %v", a)
	}
}

// TestDefaultsMayBeQuotes covers a repository that quotes a list with variables that nobody sets, while the
// source of other variables is not known.
func TestDefaultsMayBeQuotes(t *testing.T) {
	dir := repository(t, `-- c/db.yaml --
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: db, namespace: flux-system }
spec:
  path: ./db
  sourceRef: { kind: GitRepository, name: flux-system }
  postBuild: { substitute: { list: "[{ name: x }]" }, substituteFrom: [{ kind: Secret, name: unknown }] }
-- db/map.yaml --
apiVersion: v1
kind: ConfigMap
metadata: { name: x }
data:
  list: ${q:='}${list}${q:='}
`)
	r, err := gitops.Read(gitops.Options{Folder: dir, Path: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if data := r[1].Objects[0].Object["data"]; fmt.Sprint(data) != "map[list:[{ name: x }]]" {
		t.Errorf("data is %v", data)
	}
}

func TestEveryProblemHasItsPlace(t *testing.T) {
	dir := repository(t, `
-- clusters/blue/all.yaml --
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: a, namespace: flux-system }
spec: { path: ./a, dependsOn: [{ name: b }], sourceRef: { kind: GitRepository, name: flux-system } }
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: b, namespace: flux-system }
spec: { path: ./b, dependsOn: [name: a, name: c], sourceRef: { name: flux-system, kind: GitRepository } }
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: d, namespace: flux-system }
spec: { path: ./d, sourceRef: { kind: GitRepository, name: flux-system } }
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: e, namespace: flux-system }
spec: { path: ./e, sourceRef: { kind: GitRepository } }
-- a/kustomization.yaml --
resources:
  - https://example.com/crds.yaml
  - github.com/example/bases//x
  - ../../outside.yaml
  - missing.yaml
  - empty
patches:
  - path: http://example.com/patch.yaml
configMapGenerator:
  - name: x
    files: [key=gone.txt]
-- a/empty/README.md --
-- b/broken.yaml --
apiVersion: v1
kind: ConfigMap
metadata:
  name: x
   bad: y
-- b/itself.yaml --
apiVersion: v1
kind: Secret
metadata: &itself { <<: *itself }
-- b/nothing.yaml --

apiVersion: v1
---
apiVersion: v1
kind: ConfigMap
`)
	_, err := gitops.Read(gitops.Options{Folder: dir, Path: "./clusters/blue"})
	want := strings.NewReplacer("REMOTE", "not in this repository, so castle cannot read it; copy it in, "+
		"or make it a source of Flux's with a Kustomization of its own",
		"KS/", "Kustomization flux-system/", " f/", " flux-system/").Replace(
		`a/kustomization.yaml:2: https://example.com/crds.yaml is REMOTE
a/kustomization.yaml:3: github.com/example/bases//x is REMOTE
a/kustomization.yaml:4: ../../outside.yaml is outside of the repository
a/kustomization.yaml:5: missing.yaml does not exist
a/kustomization.yaml:6: empty has no kustomization.yaml
a/kustomization.yaml:8: http://example.com/patch.yaml is REMOTE
a/kustomization.yaml:11: gone.txt does not exist
b/broken.yaml:5: no YAML: mapping values are not allowed in this context
b/itself.yaml:1: Secret without metadata.name
b/nothing.yaml:2: no object of Kubernetes: it has no apiVersion or no kind
b/nothing.yaml:4: ConfigMap without metadata.name
clusters/blue/all.yaml:1: KS/a depends on itself: flux-system/a → flux-system/b → flux-system/a
clusters/blue/all.yaml:6: KS/b depends on f/c, which the repository does not declare: it never starts
clusters/blue/all.yaml:6: KS/b depends on itself: flux-system/b → flux-system/a → flux-system/b
clusters/blue/all.yaml:11: KS/d: the repository has no folder ./d
clusters/blue/all.yaml:16: KS/e: spec.sourceRef names no source`)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
}

func TestObjectDeclaredTwiceIsAProblem(t *testing.T) {
	dir := repository(t, `
-- clusters/blue/a.yaml --
apiVersion: v1
kind: ConfigMap
metadata: { name: x, namespace: y }
-- clusters/blue/b.yaml --
apiVersion: v1
kind: ConfigMap
metadata: { name: x, namespace: z }
---
apiVersion: v1
kind: ConfigMap
metadata: { namespace: y, name: x }
`)
	_, err := gitops.Read(gitops.Options{Folder: dir, Path: "./clusters/blue"})
	if err == nil ||
		err.Error() != "clusters/blue/b.yaml:5: ConfigMap x is declared twice; the other one is at "+
			"clusters/blue/a.yaml:1" {
		t.Errorf("got %v", err)
	}
}

// TestDeprecatedFieldsAreRead covers old fields: they work, and kustomize prints no warnings to stderr.
func TestDeprecatedFieldsAreRead(t *testing.T) {
	dir := repository(t, `
-- clusters/blue/kustomization.yaml --
bases: [base]
commonLabels: { team: ops }
patchesStrategicMerge:
  - patch.yaml
  - |
    apiVersion: v1
    kind: Service
    metadata: { name: x, namespace: y }
    spec: { externalName: inline }
-- clusters/blue/patch.yaml --
apiVersion: v1
kind: Service
metadata: { name: x, namespace: y, annotations: { from: file } }
-- clusters/blue/base/kustomization.yaml --
resources: [x.yaml]
commonLabels: { base: "yes" }
-- clusters/blue/base/x.yaml --
apiVersion: v1
kind: Service
metadata: { name: x, namespace: y }
spec: { selector: { app: x } }
`)
	complaints, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = complaints
	r, err := gitops.Read(gitops.Options{Folder: dir, Path: "./clusters/blue"})
	os.Stderr = stderr
	if err != nil {
		t.Fatal(err)
	}
	got, err := r[0].Objects[0].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1","kind":"Service","metadata":{"annotations":{"from":"file"},` +
		`"labels":{"base":"yes","team":"ops"},"name":"x","namespace":"y"},` +
		`"spec":{"externalName":"inline","selector":{"app":"x","base":"yes","team":"ops"}}}` + "\n"
	if string(got) != want {
		t.Errorf("built %s", got)
	}
	if data, err := os.ReadFile(complaints.Name()); err != nil || len(data) > 0 {
		t.Errorf("complained: %s, %v", data, err)
	}
}

// TestNothingIsFetched covers resources that kustomize would fetch.
func TestNothingIsFetched(t *testing.T) {
	for _, text := range []string{
		"resources: ['https://127.0.0.1:1/x.yaml']",
		"namespace: &there https://127.0.0.1:1/x.yaml\nresources: [*there]",
		"metadata: { annotations: &all { path: 'http://127.0.0.1:1/x.yaml' } }\npatches: [{ <<: *all }]",
		"components: ['git@127.0.0.1:a/b']",
		"resources: ['ssh://127.0.0.1/a/b']",
		"bases: ['GitHub.com/a/b']",
		"crds: ['https://127.0.0.1:1/x.yaml']",
		"generators: ['https://127.0.0.1:1/x.yaml']",
		"openapi: { path: 'https://127.0.0.1:1/x.json' }",
		"secretGenerator: [{ name: x, files: ['k=https://127.0.0.1:1/x'] }]",
		"configMapGenerator: [{ name: x, env: 'https://127.0.0.1:1/x' }]",
	} {
		dir := repository(t, "-- a/kustomization.yaml --\n"+text+"\n")
		_, err := gitops.Read(gitops.Options{Folder: dir, Path: "a"})
		if err == nil || !strings.Contains(err.Error(), "is not in this repository") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestNothingOutsideIsRead(t *testing.T) {
	outside := repository(t, "-- secret.yaml --\napiVersion: v1\nkind: Secret\nmetadata: { name: x }\n")
	dir := repository(t, "-- clusters/blue/a.yaml --\napiVersion: v1\nkind: ConfigMap\n"+
		"metadata: { name: x, namespace: y }\n")
	if err := os.Symlink(filepath.Join(outside, "secret.yaml"),
		filepath.Join(dir, "clusters/blue/link.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := gitops.Read(gitops.Options{Folder: dir, Path: "./clusters/blue"}); err == nil ||
		!strings.Contains(err.Error(), "outside of the repository") {
		t.Errorf("read through a link: %v", err)
	}
}

func TestMissingFolderIsAnError(t *testing.T) {
	dir := t.TempDir()
	for _, o := range []gitops.Options{{Folder: filepath.Join(dir, "gone")},
		{Folder: dir, Path: "./clusters/blue"}} {
		if _, err := gitops.Read(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
