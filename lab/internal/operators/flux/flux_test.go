package flux

import (
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
	"github.com/ephemeral-castle/castle/lab/internal/sources"
)

const (
	gitRepository = `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository",
		"metadata":{"name":"flux-system","namespace":"flux-system","uid":"2","generation":1},
		"spec":{"url":"SERVER/me/cluster","ref":{"branch":"main"},"secretRef":{"name":"flux-system"}}}`
	rootKustomization = `{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization",
		"metadata":{"name":"flux-system","namespace":"flux-system","uid":"3","generation":1},
		"spec":{"sourceRef":{"kind":"GitRepository","name":"flux-system"},"prune":true,"interval":"10m"}}`
)

func TestAFrozenKustomizationNoticesNothingUntilItIsNudged(t *testing.T) {
	s := newStage(0, clustertest.Deployment("flux-system", "source-controller"),
		clustertest.Deployment("flux-system", "kustomize-controller"))
	var told []cluster.Turn
	s.World.Faults.Frozen, s.World.Turn = true, func(turn cluster.Turn) { told = append(told, turn) }
	takesApply(s)
	s.Create(t, repositories(), strings.Replace(gitRepository, "SERVER", served(t, invented(t)), 1))
	s.Create(t, kustomizations(), inventedRoot)
	s.Add(t, credentials())
	s.Add(t,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "cluster-vars"}})
	f := New(s.World, NewFleet(s.World, serving(s), ""), t.TempDir())
	child := func(name string) *unstructured.Unstructured {
		return s.Get(t, kustomizations(), "flux-system", name)
	}
	for range 5 {
		s.Look(t, f)
	}
	if cluster.ConditionOf(child("infrastructure-operators").Object, "Ready") != "True" {
		t.Fatalf("the dependency: %v", child("infrastructure-operators").Object["status"])
	}
	for _, name := range []string{"infrastructure-configs", "apps"} {
		if cluster.ConditionOf(child(name).Object, "Ready") != "False" {
			t.Errorf("%s: %v", name, child(name).Object["status"])
		}
	}
	if len(told) != 1 || told[0].Ends {
		t.Errorf("told: %v", told)
	}

	k := child("infrastructure-configs")
	k.SetAnnotations(map[string]string{requested: "now"})
	if _, err := s.World.Untyped.Resource(kustomizations()).Namespace("flux-system").Update(t.Context(), k,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.Look(t, f)
	}
	if got := child("infrastructure-configs"); cluster.ConditionOf(got.Object, "Ready") != "True" ||
		cluster.Text(got.Object, "status", "lastHandledReconcileAt") != "now" {
		t.Errorf("after the nudge: %v", got.Object["status"])
	}
	if cluster.ConditionOf(child("apps").Object, "Ready") != "True" {
		t.Errorf("apps: %v", child("apps").Object["status"])
	}
	if len(told) != 2 || !told[1].Ends || told[1].Fault != "kustomization-frozen" {
		t.Errorf("told: %v", told)
	}
}

const inventedRoot = `{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization",
	"metadata":{"name":"flux-system","namespace":"flux-system","uid":"3","generation":1},
	"spec":{"path":"./clusters/x","sourceRef":{"kind":"GitRepository","name":"flux-system"},"prune":true,
	"interval":"10m"}}`

func invented(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := sources.Invent(dir, "./clusters/x", "GitRepository"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// served is the address of a server with a folder's repository.
func served(t *testing.T, folder string) string {
	t.Helper()
	g, err := sources.NewGit(t.Context(), t.TempDir(), folder, []string{"main"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return server.URL
}

func credentials() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "flux-system"},
		Data: map[string][]byte{"username": []byte("git"), "password": []byte("token")}}
}

func newStage(speed float64, objects ...runtime.Object) *clustertest.Stage {
	kinds := map[schema.GroupVersionResource]string{
		repositories():   "GitRepositoryList",
		artifacts():      "OCIRepositoryList",
		kustomizations(): "KustomizationList",
	}
	return clustertest.New(kinds, speed, objects...)
}
