package kube

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestFluxNudgesWhatStandsStillBehindWhatIsReady(t *testing.T) {
	serves := []kind{
		{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
		{"helm.toolkit.fluxcd.io/v2", "HelmRelease", "helmreleases", true},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
		{"source.toolkit.fluxcd.io/v1", "HelmRepository", "helmrepositories", true},
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	needs := func(object, dependency string) string {
		return strings.Replace(object, "spec: {", "spec: {dependsOn: ["+dependency+"], ", 1)
	}
	frozen := strings.Replace(waiting, "dependsOn: [{name: infrastructure}], ", "", 1)
	askedAt := func(ago time.Duration) string {
		return strings.Replace(frozen, "metadata: {", "metadata: {annotations: {"+requestedAt+": '"+now.Add(-ago).Format(time.RFC3339Nano)+"'}, ", 1)
	}
	with := func(fields string) string {
		return strings.Replace(frozen, "spec: {", "spec: {"+fields+", ", 1)
	}
	unready := strings.Replace(repository, `status: "True"`, `status: "False"`, 1)
	releaseWaits := `{kind: HelmRelease, metadata: {generation: 1}, spec: {dependsOn: [{name: database}], chart: {spec: {sourceRef: {kind: HelmRepository, name: charts}}}},
		status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: DependencyNotReady}]}}`
	apps, infrastructure := fluxKustomizations+"apps", fluxKustomizations+"infrastructure"
	git := put{fluxRepository, repository}
	const asks = "asked to reconcile what is not ready although all that it needs is: "
	for name, tt := range map[string]struct {
		names   []string
		objects []put
		did     string
	}{
		"nothing to do":                        {objects: []put{git, {apps, applied}}},
		"frozen behind nothing":                {objects: []put{git, {apps, frozen}}, did: asks + "kustomization flux-system/apps"},
		"frozen behind a ready dependency":     {objects: []put{git, {apps, waiting}, {infrastructure, applied}}, did: asks + "kustomization flux-system/apps"},
		"failed a while ago":                   {objects: []put{git, {apps, broken}}, did: asks + "kustomization flux-system/apps"},
		"behind its source":                    {objects: []put{git, {apps, behindSource}}, did: asks + "kustomization flux-system/apps"},
		"its dependency is frozen as well":     {objects: []put{git, {apps, waiting}, {infrastructure, frozen}}, did: asks + "kustomization flux-system/infrastructure"},
		"its dependency is behind":             {objects: []put{git, {apps, waiting}, {infrastructure, behindSource}}, did: asks + "kustomization flux-system/infrastructure"},
		"its dependency is at work":            {objects: []put{git, {apps, waiting}, {infrastructure, progressing}}},
		"its dependency does not exist":        {objects: []put{git, {apps, waiting}}},
		"its dependency is not asked about":    {names: []string{"apps"}, objects: []put{git, {apps, waiting}, {infrastructure, applied}}, did: asks + "kustomization flux-system/apps"},
		"one not asked about is not ready":     {names: []string{"apps"}, objects: []put{git, {apps, waiting}, {infrastructure, broken}}},
		"its dependency is elsewhere":          {objects: []put{git, {apps, needs(frozen, "{name: infrastructure, namespace: base}")}, {infrastructure, applied}}},
		"its source is not ready":              {objects: []put{{fluxRepository, unready}, {apps, frozen}}},
		"its source does not exist":            {objects: []put{{apps, frozen}}},
		"at work":                              {objects: []put{git, {apps, progressing}}},
		"suspended":                            {objects: []put{git, {apps, with("suspend: true")}}},
		"never looked at":                      {objects: []put{git, {apps, fresh}}},
		"asked half a minute ago":              {objects: []put{git, {apps, askedAt(30 * time.Second)}}, did: asks + "kustomization flux-system/apps"},
		"asked less than half a minute ago":    {objects: []put{git, {apps, askedAt(29 * time.Second)}}},
		"a release that has given up":          {objects: []put{git, {apps, applied}, {fluxCharts, charts}, {fluxReleases + "podinfo", stuck}}},
		"a release behind a ready one":         {objects: []put{git, {apps, applied}, {fluxCharts, charts}, {fluxReleases + "database", released}, {fluxReleases + "podinfo", releaseWaits}}, did: asks + "helmrelease web/podinfo"},
		"a release behind one that has failed": {objects: []put{git, {apps, applied}, {fluxCharts, charts}, {fluxReleases + "database", stuck}, {fluxReleases + "podinfo", releaseWaits}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			f.kinds = serves
			for _, p := range tt.objects {
				f.put(t, p.at, p.object)
			}
			flux := &convergence{names: tt.names}
			c := newCluster(gate.Target{Kubeconfig: f.kubeconfig()}, "")
			nudge := func() (did string) {
				err := c.ask(func(ctx context.Context, a *api) (err error) {
					did, err = flux.nudge(ctx, a, now)
					return err
				})(t.Context())
				if err != nil {
					t.Error(err)
				}
				return did
			}
			if did := nudge(); did != tt.did {
				t.Errorf("it did %q, want %q", did, tt.did)
			}
			if did := nudge(); did != "" {
				t.Errorf("at the same moment it did more: %q", did)
			}
		})
	}
}

func TestFluxSaysWhatItCouldNotNudge(t *testing.T) {
	f := newFakeAPI(t)
	f.kinds = []kind{
		{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
	}
	f.put(t, fluxRepository, repository)
	f.put(t, fluxKustomizations+"apps", broken)
	f.put(t, fluxKustomizations+"web", broken)
	denied := failure(500, "InternalError", "the disk is full")
	f.answer("PATCH "+fluxKustomizations+"apps", denied.code, denied.body)
	did, err := newGate(t, "flux", f.kubeconfig(), nil).TriggerReconcile(t.Context())
	if want := "asked to reconcile what is not ready although all that it needs is: kustomization flux-system/web"; did != want {
		t.Errorf("it did %q, want %q", did, want)
	}
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("error: %v", err)
	}
}
