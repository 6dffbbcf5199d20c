package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
)

func TestFluxReconcilesObjectsIdleBehindReadyOnes(t *testing.T) {
	serves := []kind{
		{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
		{"helm.toolkit.fluxcd.io/v2", "HelmRelease", "helmreleases", true},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
		{"source.toolkit.fluxcd.io/v1", "HelmRepository", "helmrepositories", true},
	}
	now := time.Now()
	needs := func(object, dependency string) string {
		return strings.Replace(object, "spec: {", "spec: {dependsOn: ["+dependency+"], ", 1)
	}
	frozen := strings.Replace(waiting, "dependsOn: [{name: infrastructure}],", "", 1)
	requestedBefore := func(ago time.Duration) string {
		return strings.Replace(frozen, "metadata: {",
			"metadata: {annotations: {reconcile.fluxcd.io/requestedAt: '"+
				now.Add(-ago).Format(time.RFC3339Nano)+"'}, ", 1)
	}
	with := func(fields string) string {
		return strings.Replace(frozen, "spec: {", "spec: {"+fields+", ", 1)
	}
	unready := strings.Replace(repository, `status: "True"`, `status: "False"`, 1)
	releaseWaits := `{kind: HelmRelease, metadata: {generation: 1}, spec: {dependsOn: [{name: database}],
		chart: {spec: {sourceRef: {kind: HelmRepository, name: charts}}}},
		status: {observedGeneration: 1, conditions: [{type: Ready, status: "False",
		  reason: DependencyNotReady}]}}`
	apps, infrastructure := fluxKustomizations+"apps", fluxKustomizations+"infrastructure"
	git := fixture{fluxRepository, repository}
	const requests = "requested a reconcile of objects that are not ready although their dependencies are: "
	for name, tt := range map[string]struct {
		names   []string
		objects []fixture
		did     string
	}{
		"nothing to do": {objects: []fixture{git, {apps, applied}}},
		"frozen behind nothing": {objects: []fixture{git, {apps, frozen}}, did: requests +
			"kustomization flux-system/apps"},
		"frozen behind a ready dependency": {objects: []fixture{git, {apps, waiting},
			{infrastructure, applied}}, did: requests + "kustomization flux-system/apps"},
		"failed a while ago": {objects: []fixture{git, {apps, broken}}, did: requests +
			"kustomization flux-system/apps"},
		"behind its source": {objects: []fixture{git, {apps, behindSource}}, did: requests +
			"kustomization flux-system/apps"},
		"its dependency is frozen as well": {objects: []fixture{git, {apps, waiting},
			{infrastructure, frozen}}, did: requests + "kustomization flux-system/infrastructure"},
		"its dependency is behind": {objects: []fixture{git, {apps, waiting},
			{infrastructure, behindSource}}, did: requests + "kustomization flux-system/infrastructure"},
		"its dependency is at work": {objects: []fixture{git, {apps, waiting},
			{infrastructure, progressing}}},
		"its dependency does not exist": {objects: []fixture{git, {apps, waiting}}},
		"its dependency is not the gate's": {names: []string{"apps"}, objects: []fixture{git,
			{apps, waiting}, {infrastructure, applied}}, did: requests + "kustomization flux-system/apps"},
		"one that is not the gate's is not ready": {names: []string{"apps"},
			objects: []fixture{git, {apps, waiting}, {infrastructure, broken}}},
		"its dependency is elsewhere": {objects: []fixture{git,
			{apps, needs(frozen, "{name: infrastructure, namespace: base}")}, {infrastructure, applied}}},
		"its source is not ready": {objects: []fixture{{fluxRepository, unready},
			{apps, frozen}}},
		"its source does not exist": {objects: []fixture{{apps, frozen}}},
		"at work":                   {objects: []fixture{git, {apps, progressing}}},
		"suspended":                 {objects: []fixture{git, {apps, with("suspend: true")}}},
		"never looked at":           {objects: []fixture{git, {apps, fresh}}},
		"requested half a minute ago": {objects: []fixture{git,
			{apps, requestedBefore(30 * time.Second)}}, did: requests + "kustomization flux-system/apps"},
		"requested less than half a minute ago": {objects: []fixture{git,
			{apps, requestedBefore(25 * time.Second)}}},
		"a release that has given up": {objects: []fixture{git, {apps, applied}, {fluxCharts, charts},
			{fluxReleases + "podinfo", stuck}}},
		"a release behind a ready one": {objects: []fixture{git, {apps, applied}, {fluxCharts, charts},
			{fluxReleases + "database", released}, {fluxReleases + "podinfo", releaseWaits}}, did: requests +
			"helmrelease web/podinfo"},
		"a release behind one that has failed": {objects: []fixture{git, {apps, applied},
			{fluxCharts, charts},
			{fluxReleases + "database", stuck}, {fluxReleases + "podinfo", releaseWaits}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			f.kinds = serves
			for _, p := range tt.objects {
				f.add(t, p.at, p.object)
			}
			arguments := map[string]cty.Value{}
			if tt.names != nil {
				arguments["names"] = cty.ListVal([]cty.Value{str(tt.names[0])})
			}
			g := newGate(t, "flux", f.kubeconfig(), arguments)
			trigger := func() string {
				did, err := g.TriggerReconcile(t.Context())
				if err != nil {
					t.Error(err)
				}
				return did
			}
			if did := trigger(); did != tt.did {
				t.Errorf("it did %q, want %q", did, tt.did)
			}
			if did := trigger(); did != "" {
				t.Errorf("at the same moment it did more: %q", did)
			}
		})
	}
}

func TestFluxReportsFailedReconcileRequests(t *testing.T) {
	f := newFakeAPI(t)
	f.kinds = []kind{
		{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
	}
	f.add(t, fluxRepository, repository)
	f.add(t, fluxKustomizations+"apps", broken)
	f.add(t, fluxKustomizations+"web", broken)
	denied := failure(500, "InternalError", "the disk is full")
	f.answer("PATCH "+fluxKustomizations+"apps", denied.code, denied.body)
	did, err := newGate(t, "flux", f.kubeconfig(), nil).TriggerReconcile(t.Context())
	if want := "requested a reconcile of objects that are not ready although their dependencies are: " +
		"kustomization flux-system/web"; did != want {
		t.Errorf("it did %q, want %q", did, want)
	}
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("error: %v", err)
	}
}
