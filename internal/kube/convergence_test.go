package kube

import (
	"fmt"
	"strings"
	"testing"
)

func TestConvergenceNamesTheChainThatTookLongest(t *testing.T) {
	f := newFakeAPI(t)
	f.kinds = []kind{
		{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
		{"helm.toolkit.fluxcd.io/v2", "HelmRelease", "helmreleases", true},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
	}
	f.add(t, fluxRepository, repository)
	at := func(second int) string { return fmt.Sprintf("2026-01-01T00:00:%02dZ", second) }
	object := func(kind, name, by, spec, status string, created int) string {
		return `{kind: ` + kind + `, metadata: {name: ` + name + `, namespace: flux-system, generation: 1,
			creationTimestamp: "` + at(created) + `", labels: {kustomize.toolkit.fluxcd.io/name: "` + by + `",
			kustomize.toolkit.fluxcd.io/namespace: flux-system}}, spec: {` + spec + `}, status: {
			observedGeneration: 1, conditions: [` + status + `]}}`
	}
	ready := func(second int) string {
		return `{type: Ready, status: "True", lastTransitionTime: "` + at(second) + `"}`
	}
	for name, text := range map[string]string{
		fluxKustomizations + "root": object("Kustomization", "root", "", "", ready(2), 0),
		fluxKustomizations + "operators": object("Kustomization", "operators", "root", "wait: true",
			ready(31), 1),
		fluxKustomizations + "quick": object("Kustomization", "quick", "root", "", ready(5), 1),
		fluxKustomizations + "settings": object("Kustomization", "settings", "root",
			"dependsOn: [{name: operators}]", ready(35), 1),
		fluxKustomizations + "broken": object("Kustomization", "broken", "root", "",
			`{type: Ready, status: "False", reason: BuildFailed, message: no folder}`, 1),
		strings.Replace(fluxReleases, "web", "flux-system", 1) + "heavy": object("HelmRelease", "heavy",
			"operators", "", ready(30), 3),
	} {
		f.add(t, name, text)
	}
	steps, err := newGate(t, "flux", f.kubeconfig(), nil).Convergence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		text := s.Name
		if s.Seconds != nil {
			text += fmt.Sprintf(" %.0fs", *s.Seconds)
		}
		if s.Critical {
			text += " critical"
		}
		got = append(got, strings.TrimSpace(text+" "+s.Reason))
	}
	want := `kustomization flux-system/root 2s critical
kustomization flux-system/quick 4s
helmrelease flux-system/heavy 27s critical
kustomization flux-system/operators 1s critical
kustomization flux-system/settings 4s critical
kustomization flux-system/broken kustomization flux-system/broken: BuildFailed: no folder`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
