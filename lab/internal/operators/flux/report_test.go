package flux

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAReadyConditionHasOneEvent(t *testing.T) {
	s := newStage(0)
	s.Create(t, kustomizations(), inventedRoot)
	for _, c := range [][3]string{{"Unknown", "Progressing", "at it"}, {"False", "BuildFailed", "no path"},
		{"False", "BuildFailed", "no path"}, {"True", "ReconciliationSucceeded", "Applied revision: 1"}} {
		k := s.Get(t, kustomizations(), "flux-system", "flux-system")
		if err := report(t.Context(), s.World, kustomizations(), k, func(status map[string]any) {
			s.World.SetCondition(status, "Ready", c[0], c[1], c[2], 1)
		}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.World.Typed.CoreV1().Events("flux-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, e := range all.Items {
		have[fmt.Sprintf("%s %s %s/%s %s", e.Source.Component, e.Type, e.InvolvedObject.Kind,
			e.InvolvedObject.Name, e.Message)] = true
	}
	if len(all.Items) != 2 || !have["kustomize-controller Warning Kustomization/flux-system no path"] ||
		!have["kustomize-controller Normal Kustomization/flux-system Applied revision: 1"] {
		t.Errorf("events: %v", have)
	}
}

func TestTheObjectsOfAReleaseNameItsHelmRelease(t *testing.T) {
	out, err := origin{"web", "traefik"}.Run(bytes.NewBufferString("# of a template\n---\nkind: Service\n" +
		"metadata:\n  name: a\n  labels: {b: c}\n---\nkind: ConfigMap\nmetadata: {name: d}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const labels = "helm.toolkit.fluxcd.io/name: traefik\n    helm.toolkit.fluxcd.io/namespace: web\n"
	if text := out.String(); strings.Count(text, "---\n") != 2 || strings.Count(text, labels) != 2 ||
		!strings.Contains(text, "b: c\n") {
		t.Error(text)
	}
}
