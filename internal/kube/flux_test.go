package kube

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

const (
	fluxKustomizations = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/"
	fluxReleases       = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/web/helmreleases/"
	fluxRepository     = "/apis/source.toolkit.fluxcd.io/v1/namespaces/" +
		"flux-system/gitrepositories/flux-system"
	fluxCharts = "/apis/source.toolkit.fluxcd.io/v1/namespaces/web/helmrepositories/charts"

	repository = `{kind: GitRepository, metadata: {generation: 1}, status: {observedGeneration: 1,
		artifact: {revision: "main@sha1:2"}, conditions: [{type: Ready, status: "True"}]}}`
	applied = `{kind: Kustomization, metadata: {generation: 1}, spec: {sourceRef: {kind: GitRepository,
		name: flux-system}},
		status: {observedGeneration: 1, lastAppliedRevision: "main@sha1:2", conditions: [{type: Ready,
		  status: "True", reason: ReconciliationSucceeded}]}}`
	behindSource = `{kind: Kustomization, metadata: {generation: 1}, spec: {sourceRef: {kind: GitRepository,
		name: flux-system}},
		status: {observedGeneration: 1, lastAppliedRevision: "main@sha1:1", conditions: [{type: Ready,
		  status: "True", reason: ReconciliationSucceeded}]}}`
	fresh = `{kind: Kustomization, metadata: {generation: 1}, spec: {sourceRef: {kind: GitRepository,
		name: flux-system}},
		status: {observedGeneration: -1}}`
	broken = `{kind: Kustomization, metadata: {generation: 1}, spec: {sourceRef: {kind: GitRepository,
		name: flux-system}},
		status: {observedGeneration: -1, conditions: [{type: Reconciling, status: "True",
		  reason: ProgressingWithRetry},
			{type: Ready, status: "False", reason: BuildFailed,
			  message: "kustomize build failed: no such file"}]}}`
	waiting = `{kind: Kustomization, metadata: {generation: 1}, spec: {dependsOn: [{name: infrastructure}],
		sourceRef: {kind: GitRepository, name: flux-system}},
		status: {observedGeneration: -1, conditions: [{type: Ready, status: "False",
		  reason: DependencyNotReady, message: "dependency 'flux-system/infrastructure' is not ready"}]}}`
	progressing = `{kind: Kustomization, metadata: {generation: 1}, spec: {sourceRef: {kind: GitRepository,
		name: flux-system}},
		status: {observedGeneration: 1, conditions: [{type: Reconciling, status: "True", reason: Progressing,
		  message: Running health checks},
			{type: Ready, status: Unknown, reason: Progressing}]}}`
	suspended = `{kind: Kustomization, metadata: {generation: 1}, spec: {suspend: true,
		sourceRef: {kind: GitRepository, name: flux-system}},
		status: {observedGeneration: 1, lastAppliedRevision: "main@sha1:2", conditions: [{type: Ready,
		  status: "True"}]}}`
	changed = `{kind: Kustomization, metadata: {generation: 2}, spec: {sourceRef: {kind: GitRepository,
		name: flux-system}},
		status: {observedGeneration: 1, lastAppliedRevision: "main@sha1:2", conditions: [{type: Ready,
		  status: "True"}]}}`
	released = `{kind: HelmRelease, metadata: {generation: 1},
		spec: {chart: {spec: {sourceRef: {kind: HelmRepository, name: charts}}}},
		status: {observedGeneration: 1, conditions: [{type: Ready, status: "True",
		  reason: InstallSucceeded}]}}`
	stuck = `{kind: HelmRelease, metadata: {generation: 1},
		spec: {chart: {spec: {sourceRef: {kind: HelmRepository, name: charts}}}},
		status: {observedGeneration: 1, conditions: [{type: Stalled, status: "True", reason: RetriesExceeded,
		  message: Failed to install after 1 attempt(s)},
			{type: Ready, status: "False", reason: InstallFailed}]}}`
	charts = `{kind: HelmRepository, metadata: {generation: 1}, status: {observedGeneration: 1, ` +
		`artifact: {revision: "sha256:9"}, conditions: [{type: Ready, status: "True"}]}}`
	ociCharts = `{kind: HelmRepository, metadata: {generation: 1}, spec: {type: oci}}`
)

func TestFlux(t *testing.T) {
	flux := []kind{
		{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
		{"helm.toolkit.fluxcd.io/v2", "HelmRelease", "helmreleases", true},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
		{"source.toolkit.fluxcd.io/v1", "HelmRepository", "helmrepositories", true},
		{"source.toolkit.fluxcd.io/v1", "HelmChart", "helmcharts", true},
		{"source.toolkit.fluxcd.io/v1beta2", "OCIRepository", "ocirepositories", true},
	}
	root, apps, git := fluxKustomizations+"flux-system", fluxKustomizations+"apps",
		fixture{fluxRepository, repository}
	charted := func(version string) string {
		return `{kind: HelmRelease, metadata: {generation: 1},
			spec: {chart: {spec: {sourceRef: {kind: HelmRepository, name: charts}}}},
			status: {observedGeneration: 1, helmChart: web/web-podinfo,
			  lastAttemptedRevision: ` + version + `, conditions: [{type: Ready, status: "True"}]}}`
	}
	chart := func(version string) fixture {
		return fixture{"/apis/source.toolkit.fluxcd.io/v1/namespaces/web/helmcharts/web-podinfo",
			`{kind: HelmChart, metadata: {generation: 1},
			status: {observedGeneration: 1,
			  artifact: {revision: ` + version + `}, conditions: [{type: Ready, status: "True"}]}}`}
	}
	packed := func(digest string) string {
		return `{kind: HelmRelease, metadata: {generation: 1}, spec: {chartRef: {kind: OCIRepository,
			name: podinfo}},
			status: {observedGeneration: 1, lastAttemptedRevision: 6.5.0+9,
			  lastAttemptedRevisionDigest: "` + digest + `", conditions: [{type: Ready, status: "True"}]}}`
	}
	artifact := fixture{"/apis/source.toolkit.fluxcd.io/v1beta2/namespaces/web/ocirepositories/podinfo",
		`{kind: OCIRepository, metadata: {generation: 1},
		status: {observedGeneration: 1, artifact: {revision: "6.5.0@sha256:9"}, conditions: [{type: Ready,
		  status: "True"}]}}`}
	only := func(names ...string) map[string]cty.Value {
		list := []cty.Value{}
		for _, n := range names {
			list = append(list, str(n))
		}
		return map[string]cty.Value{"names": cty.ListVal(list)}
	}
	runTrials(t, "flux", []trial{
		{name: "converged", serves: flux,
			objects: []fixture{git, {root, applied}, {fluxReleases + "podinfo", released},
				{fluxCharts, charts}}},
		{name: "without its helm controller", serves: flux[:1],
			objects: []fixture{{root, `{kind: Kustomization, metadata: {generation: 1},
			status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`}}},
		{name: "an address of OCI charts has no status", serves: flux,
			objects: []fixture{git, {root, applied},
				{fluxReleases + "podinfo", released}, {fluxCharts, ociCharts}}},
		{name: "not installed", want: "the API serves no kind Kustomization in " +
			"kustomize.toolkit.fluxcd.io yet"},
		{name: "nothing to do", serves: flux, want: "no Kustomization exists yet"},
		{
			name: "nothing to do here", serves: flux,
			arguments: map[string]cty.Value{"namespace": str("apps")},
			objects:   []fixture{git, {root, applied}},
			want:      "no Kustomization exists yet in namespace apps",
		},
		{
			name: "fresh", serves: flux, objects: []fixture{git, {root, fresh}},
			want: "kustomization flux-system/flux-system: its last change is not reconciled yet",
		},
		{
			name: "changed since", serves: flux, objects: []fixture{git, {root, changed}},
			want: "kustomization flux-system/flux-system: its last change is not reconciled yet",
		},
		{
			name: "causes before consequences", serves: flux, objects: []fixture{git, {root, applied},
				{apps, waiting}, {fluxKustomizations + "infrastructure", broken}},
			want: "kustomization flux-system/infrastructure: BuildFailed: kustomize build failed: no such " +
				"file; " +
				"kustomization flux-system/apps: DependencyNotReady: dependency " +
				"'flux-system/infrastructure' is not ready",
		},
		{
			name: "progressing", serves: flux, objects: []fixture{git, {root, progressing}},
			want: "kustomization flux-system/flux-system: Progressing: Running health checks",
		},
		{
			name: "awaits a source", serves: flux, objects: []fixture{{root, `{kind: Kustomization,
				metadata: {generation: 1}, status: {conditions: [{type: Reconciling, status: "True",
				  message: Running health checks}], inventory: {entries: [{id: web_web__ConfigMap, v: v1},
				  {id: web_podinfo_source.toolkit.fluxcd.io_OCIRepository, v: v1beta2}]}}}`},
				{artifact.at, `{kind: OCIRepository, metadata: {generation: 1}, status: {conditions: [
				  {type: Ready, status: "False", reason: OCIPullFailed, message: not found}]}}`}},
			want: "kustomization flux-system/flux-system: Running health checks; " +
				"ocirepository web/podinfo: OCIPullFailed: not found",
		},
		{name: "suspended", serves: flux, objects: []fixture{git, {root, suspended}},
			want: "kustomization flux-system/flux-system: is suspended"},
		{
			name: "behind its source", serves: flux, objects: []fixture{git, {root, behindSource}},
			want: "kustomization flux-system/flux-system: has applied main@sha1:1, its source is at " +
				"main@sha1:2",
		},
		{
			name: "release stalled", serves: flux,
			objects: []fixture{git, {root, applied}, {fluxReleases + "podinfo", stuck}, {fluxCharts, charts}},
			want: "helmrelease web/podinfo: stalled: RetriesExceeded: Failed to install after 1 " +
				"attempt(s)",
		},
		{
			name: "source missing, used twice", serves: flux,
			objects: []fixture{{root, applied}, {apps, applied}},
			want:    "gitrepository flux-system/flux-system: does not exist yet",
		},
		{
			name: "source failing", serves: flux, objects: []fixture{{root, applied},
				{fluxRepository, `{kind: GitRepository, metadata: {generation: 1},
				status: {observedGeneration: -1, conditions: [{type: Ready, status: "False",
				  reason: GitOperationFailed, message: authentication required}]}}`}},
			want: "gitrepository flux-system/flux-system: GitOperationFailed: authentication required",
		},
		{
			name: "source without artifact", serves: flux, objects: []fixture{{root, applied},
				{fluxRepository, `{kind: GitRepository, metadata: {generation: 1},
				status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`}},
			want: "gitrepository flux-system/flux-system: has no artifact yet",
		},
		{
			name: "source of a version that the group does not prefer", serves: flux,
			objects: []fixture{{root, `{kind: Kustomization, metadata: {generation: 1},
				spec: {sourceRef: {kind: OCIRepository, name: manifests}},
				status: {observedGeneration: 1, lastAppliedRevision: v1, conditions: [{type: Ready,
				  status: "True"}]}}`},
				{"/apis/source.toolkit.fluxcd.io/v1beta2/namespaces/flux-system/ocirepositories/manifests",
					`{kind: OCIRepository, metadata: {generation: 1},
				status: {observedGeneration: 1, artifact: {revision: v1}, conditions: [{type: Ready,
				  status: "True"}]}}`}},
		},
		{name: "release of its chart's version", serves: flux, objects: []fixture{git, {root, applied},
			{fluxReleases + "podinfo", charted("6.5.0")}, {fluxCharts, charts}, chart("6.5.0")}},
		{
			name: "release behind its chart", serves: flux, objects: []fixture{git, {root, applied},
				{fluxReleases + "podinfo", charted("6.4.0")}, {fluxCharts, charts}, chart("6.5.0")},
			want: "helmrelease web/podinfo: has applied 6.4.0, its source is at 6.5.0",
		},
		{
			name: "release whose chart is gone", serves: flux, objects: []fixture{git, {root, applied},
				{fluxReleases + "podinfo", charted("6.5.0")}, {fluxCharts, charts}},
			want: "helmchart web/web-podinfo: does not exist yet",
		},
		{name: "release of its artifact's digest", serves: flux,
			objects: []fixture{git, {root, applied}, {fluxReleases + "podinfo", packed("sha256:9")},
				artifact}},
		{name: "release of a Flux that notes no digest", serves: flux,
			objects: []fixture{git, {root, applied}, {fluxReleases + "podinfo", packed("")}, artifact}},
		{
			name: "release behind its artifact", serves: flux, objects: []fixture{git, {root, applied},
				{fluxReleases + "podinfo", packed("sha256:8")}, artifact},
			want: "helmrelease web/podinfo: has applied sha256:8, its source is at sha256:9",
		},
		{
			name: "not ready, and no word why", serves: flux,
			objects: []fixture{{fluxRepository, strings.Replace(repository, "True", "False", 1)},
				{root, strings.Replace(applied, "True", "Unknown", 1)}},
			want: "gitrepository flux-system/flux-system: is not ready; kustomization " +
				"flux-system/flux-system: ReconciliationSucceeded",
		},
		{name: "only one matters", serves: flux, arguments: only("flux-system"),
			objects: []fixture{git, {root, applied}, {apps, broken}}},
		{
			name: "the one that matters is missing", serves: flux, arguments: only("flux-system", "apps"),
			objects: []fixture{git, {root, applied}},
			want:    "no Kustomization apps exists yet",
		},
	})
}

func TestFluxIsClosedWhileItsObjectsComeAndGo(t *testing.T) {
	f := newFakeAPI(t)
	f.kinds = []kind{
		{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
	}
	f.add(t, fluxRepository, repository)
	f.add(t, fluxKustomizations+"flux-system", applied)
	g := newGate(t, "flux", f.kubeconfig(), nil)
	expect(t, f, g.Check(t.Context()), "", false)
	f.add(t, fluxKustomizations+"apps", applied)
	expect(t, f, g.Check(t.Context()), "kustomization flux-system/apps: added since the attempt before",
		false)
	expect(t, f, g.Check(t.Context()), "", false)
	f.mu.Lock()
	delete(f.objects, fluxKustomizations+"apps")
	f.mu.Unlock()
	expect(t, f, g.Check(t.Context()), "kustomization flux-system/apps: removed since the attempt before",
		false)
	expect(t, f, g.Check(t.Context()), "", false)
}

func TestFluxTakesNames(t *testing.T) {
	valid := gateType(t, "flux").Attributes["names"].Valid
	for _, bad := range []cty.Value{cty.ListValEmpty(cty.String), cty.ListVal([]cty.Value{str("")}),
		cty.ListVal([]cty.Value{cty.NullVal(cty.String)})} {
		if valid(bad) == nil {
			t.Errorf("%#v is accepted", bad)
		}
	}
}
