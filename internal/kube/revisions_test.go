package kube

import (
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestRevisionsAreListedOnceForAKindAndNamespace(t *testing.T) {
	f := newFakeAPI(t)
	list := func(at, items string) {
		f.answer(at, 200, `{"kind": "PartialObjectMetadataList", "items": [`+items+`]}`)
	}
	f.serves("v1", "Secret", "secrets", true)
	f.serves("v1", "Namespace", "namespaces", false)
	list("/api/v1/namespaces/flux-system/secrets",
		`{"metadata": {"name": "git", "uid": "a", "resourceVersion": "7"}},
		 {"metadata": {"name": "adopted", "uid": "d", "resourceVersion": "9"}},
		 {"metadata": {"name": "theirs", "uid": "b", "resourceVersion": "8"}}`)
	list("/api/v1/namespaces", `{"metadata": {"name": "flux-system", "uid": "c", "generation": 3}}`)
	const kubernetes = "registry.terraform.io/hashicorp/kubernetes"
	s := revision.Stage{InCluster: []string{kubernetes}, Target: gate.Target{Kubeconfig: f.kubeconfig()},
		State: &state.State{}, Ignores: func(typ, name string) bool {
			return typ == "kubernetes_secret" && name == "adopted"
		}}
	s.State.Resources = []state.Resource{{
		Address: `kubernetes_secret.adopted["x"]`, Type: "kubernetes_secret", Mode: "managed",
		Provider: kubernetes, Attributes: map[string]any{"id": "flux-system/adopted"},
	}}
	for typ, id := range map[string]string{"kubernetes_secret_v1": "flux-system/git",
		"kubernetes_namespace_v1": "flux-system", "kubernetes_secret": "flux-system/made",
		"kubernetes_labels": "apiVersion=v1,kind=Node,name=cp-01"} {
		s.State.Resources = append(s.State.Resources, state.Resource{
			Address: typ + ".x", Type: typ, Mode: "managed", Provider: kubernetes,
			Attributes: map[string]any{"id": id},
		})
	}
	now, err := Revisions().Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range now {
		got[o.String()] = o.Revision
	}
	if len(got) != 4 || got["Secret flux-system/git"] != "a/7" || got["Namespace flux-system"] != "c/3" ||
		got["Secret flux-system/made"] != "" || got["Secret flux-system/adopted"] != "d" {
		t.Errorf("after an apply: %v", got)
	}

	// By the recorded objects alone, the next look needs no discovery.
	f.mu.Lock()
	f.asked = nil
	f.mu.Unlock()
	list("/api/v1/namespaces/flux-system/secrets", "")
	f.answer("/api/v1/namespaces", 404, "not served")
	now, err = Revisions().Read(t.Context(), s, now)
	exists := func(o revision.Object) bool { return o.Revision != "" }
	if err != nil || len(now) != 4 || slices.ContainsFunc(now, exists) {
		t.Errorf("all is gone, but got %v, %v", now, err)
	}
	if len(f.asked) != 2 {
		t.Errorf("asked %q, want one list for each kind and namespace", f.asked)
	}

	f.answer("/api/v1/namespaces", 500, "broken")
	if _, err = Revisions().Read(t.Context(), s, now); err == nil {
		t.Error("an API that does not answer counts as one without objects")
	}
}
