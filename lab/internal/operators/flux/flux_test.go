package flux

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const (
	gitRepository = `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository",
		"metadata":{"name":"flux-system","namespace":"flux-system","uid":"2","generation":1},
		"spec":{"url":"https://git.example.com/me/cluster",
			"ref":{"branch":"main"},"secretRef":{"name":"flux-system"}}}`
	rootKustomization = `{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization",
		"metadata":{"name":"flux-system","namespace":"flux-system","uid":"3","generation":1},
		"spec":{"sourceRef":{"kind":"GitRepository","name":"flux-system"},"prune":true,"interval":"10m"}}`
)

func TestFluxConvergesWhenCredentialsAndVariablesAreThere(t *testing.T) {
	s := newStage(t, 0, deployment("flux-system", "source-controller"),
		deployment("flux-system", "kustomize-controller"))
	s.create(t, repositories(), gitRepository)
	s.create(t, kustomizations(), rootKustomization)
	f := New(s.world, nil)
	root := func() *unstructured.Unstructured {
		return s.get(t, kustomizations(), "flux-system", "flux-system")
	}

	s.look(t, f)
	if got := s.get(t, repositories(), "flux-system",
		"flux-system"); cluster.ConditionOf(got.Object, "Ready") != "False" {
		t.Errorf("a repository without credentials: %v", got.Object["status"])
	}
	if cluster.ConditionOf(root().Object, "Ready") != "False" {
		t.Errorf("a Kustomization without an artifact: %v", root().Object["status"])
	}
	create(t, s, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "flux-system"},
		Data: map[string][]byte{"username": []byte("git"), "password": []byte("token")}})
	s.look(t, f)
	revision := cluster.Text(s.get(t, repositories(), "flux-system", "flux-system").Object, "status",
		"artifact",
		"revision")
	if !strings.HasPrefix(revision, "main@sha1:") ||
		cluster.Text(root().Object, "status", "lastAppliedRevision") != revision {
		t.Errorf("artifact %q, root: %v", revision, root().Object["status"])
	}
	s.look(t, f)
	apps := func() string {
		return cluster.ConditionOf(s.get(t, kustomizations(), "flux-system", "apps").Object, "Ready")
	}
	if apps() != "False" {
		t.Errorf("apps without cluster-vars: %s", apps())
	}
	create(t, s,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "cluster-vars"}})
	for range 3 { // one for each link of the chain
		s.look(t, f)
	}
	if apps() != "True" {
		t.Errorf("apps: %v", s.get(t, kustomizations(), "flux-system", "apps").Object["status"])
	}
}

func TestFluxPrunesWhatAGoneRootHasBrought(t *testing.T) {
	s := newStage(t, 0, deployment("flux-system", "source-controller"),
		deployment("flux-system", "kustomize-controller"))
	s.create(t, repositories(), strings.Replace(gitRepository, `,"secretRef":{"name":"flux-system"}`, "", 1))
	s.create(t, kustomizations(), rootKustomization)
	f := New(s.world, nil)
	s.look(t, f)
	s.get(t, kustomizations(), "flux-system", "apps")
	if err := s.world.Untyped.Resource(kustomizations()).Namespace("flux-system").Delete(t.Context(),
		"flux-system",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look(t, f)
	left, err := s.world.List(t.Context(), kustomizations(), "")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestAFrozenKustomizationNoticesNothingUntilItIsNudged(t *testing.T) {
	s := newStage(t, 0, deployment("flux-system", "source-controller"),
		deployment("flux-system", "kustomize-controller"))
	var told []cluster.Turn
	s.world.Faults.Frozen, s.world.Turn = true, func(turn cluster.Turn) { told = append(told, turn) }
	s.create(t, repositories(), strings.Replace(gitRepository, `,"secretRef":{"name":"flux-system"}`, "", 1))
	s.create(t, kustomizations(), rootKustomization)
	create(t, s,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "cluster-vars"}})
	f := New(s.world, nil)
	child := func(name string) *unstructured.Unstructured {
		return s.get(t, kustomizations(), "flux-system", name)
	}
	for range 5 {
		s.look(t, f)
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
	if _, err := s.world.Untyped.Resource(kustomizations()).Namespace("flux-system").Update(t.Context(), k,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.look(t, f)
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
