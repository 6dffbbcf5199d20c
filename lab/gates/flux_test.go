package gates_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fluxKinds are the definitions that the gate reads, without Flux' schemas.
func fluxKinds() string {
	var all []string
	for _, k := range []struct{ group, version, kind, plural string }{
		{"kustomize", "v1", "Kustomization", "kustomizations"},
		{"helm", "v2", "HelmRelease", "helmreleases"},
		{"source", "v1", "GitRepository", "gitrepositories"},
	} {
		group := k.group + ".toolkit.fluxcd.io"
		all = append(all, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, `+
			`metadata: {name: `+k.plural+`.`+group+`},
			spec: {group: `+group+`, scope: Namespaced, names: {kind: `+k.kind+`, plural: `+k.plural+`},
				versions: [{name: `+k.version+`, served: true, storage: true, subresources: {status: {}},
					schema: {openAPIV3Schema: {
						type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	}
	return strings.Join(all, "\n---\n")
}

const fluxRepository = `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository,
	metadata: {name: flux-system, namespace: NAMESPACE},
	spec: {url: 'https://git.example.org/home.git'},
	status: {observedGeneration: 1, artifact: {revision: "main@sha1:2"},
		conditions: [{type: Ready, status: "True"}]}}`

func kustomization(name, spec, status string) string {
	return `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: ` + name +
		`, namespace: NAMESPACE},
		spec: {` + spec + `sourceRef: {kind: GitRepository, name: flux-system}}, status: {` + status + `}}`
}

const (
	fluxWaits = `observedGeneration: -1, conditions: [{type: Ready, status: "False", reason: ` +
		`DependencyNotReady, message: dependency is not ready}]`
	fluxApplied = `observedGeneration: 1, lastAppliedRevision: "main@sha1:2", conditions: [{type: Ready, ` +
		`status: "True", reason: ReconciliationSucceeded}]`
)

func TestFluxReconcilesOnceAndOpensWhenAllIsApplied(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	g := p.gate(t, "flux", args{"namespace": text(ns)})
	closed(t, g, "the API serves no kind Kustomization in kustomize.toolkit.fluxcd.io yet")
	p.create(t, "", fluxKinds())
	opens(t, p.gate(t, "crd", args{"names": texts("kustomizations.kustomize.toolkit.fluxcd.io",
		"helmreleases.helm.toolkit.fluxcd.io", "gitrepositories.source.toolkit.fluxcd.io")}))
	closed(t, g, "no Kustomization exists yet in namespace "+ns)

	p.create(t, ns, fluxRepository)
	p.create(t, ns, kustomization("base", "", fluxWaits))
	p.create(t, ns, kustomization("apps", "dependsOn: [{name: base}], ", fluxWaits))
	closed(t, g, "kustomization "+ns+"/apps: DependencyNotReady: dependency is not ready; kustomization "+ns+
		"/base: DependencyNotReady: dependency is not ready")
	reconciles := func(want string) {
		t.Helper()
		did, err := g.TriggerReconcile(t.Context())
		check(t, err)
		if want != "" {
			want = "requested a reconcile of objects that are not ready although their dependencies are: " +
				"kustomization " +
				ns + "/" + want
		}
		if did != want {
			t.Fatalf("it did %q, want %q", did, want)
		}
	}
	asked := func(name string) bool {
		t.Helper()
		o, err := p.dynamic.Resource(schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io",
			Version: "v1", Resource: "kustomizations"}).
			Namespace(ns).Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		if o.GetGeneration() != 1 {
			t.Fatalf("%s has become another object: generation %d", name, o.GetGeneration())
		}
		return o.GetAnnotations()["reconcile.fluxcd.io/requestedAt"] != ""
	}
	reconciles("base")
	reconciles("") // it was asked a moment ago
	if !asked("base") || asked("apps") {
		t.Fatal("not base alone was asked")
	}
	p.report(t, ns, kustomization("base", "", fluxApplied))
	reconciles("apps")
	if !asked("apps") {
		t.Fatal("apps was not asked")
	}
	p.report(t, ns, kustomization("apps", "", fluxApplied))
	open(t, g)
	reconciles("")

	// The root applies another one.
	p.create(t, ns, kustomization("late", "", fluxApplied))
	closed(t, g, "kustomization "+ns+"/late: added since the attempt before")
	open(t, g)
	p.create(t, ns, `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: web, `+
		`namespace: NAMESPACE}, spec: {suspend: true}}`)
	closed(t, g, "helmrelease "+ns+"/web: is suspended")
}
