package kube

import (
	"context"
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// watched is a gate that one object opens, with the requests that watch it.
type watched struct {
	gate      string
	arguments map[string]cty.Value
	serves    []kind
	objects   []fixture // there from the start
	opens     fixture   // comes while the gate waits
	watches   []string
}

func watchedGates(t *testing.T) []watched {
	authority := base64.StdEncoding.EncodeToString(authority(t))
	configuration := fixture{admission + "validatingwebhookconfigurations/metallb",
		`{kind: ValidatingWebhookConfiguration, webhooks: [{name: a.metallb.io,
		clientConfig: {caBundle: ` + authority +
			`, service: {namespace: metallb-system, name: metallb-webhook-service}}}]}`}
	slices := "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	stores := "/apis/external-secrets.io/v1/clustersecretstores"
	return []watched{
		{
			gate: "endpoint_slice", arguments: map[string]cty.Value{"namespace": str("default"),
				"service": str("web")},
			opens: fixture{slices + "/a", `{kind: EndpointSlice, ` +
				`metadata: {labels: {kubernetes.io/service-name: web}}, endpoints: [{}]}`},
			watches: []string{"/api/v1/namespaces/default/services?metadata.name=web",
				slices + "?kubernetes.io/service-name=web"},
		},
		{
			gate: "workload", arguments: is("Deployment", "controller"),
			opens:   fixture{apps + "deployments/controller", rolledOut},
			watches: []string{apps + "deployments?metadata.name=controller"},
		},
		{
			gate: "condition", arguments: map[string]cty.Value{"kind": str("ClusterSecretStore")},
			serves: []kind{{"external-secrets.io/v1", "ClusterSecretStore", "clustersecretstores", false}},
			opens: fixture{stores + "/infisical",
				`{kind: ClusterSecretStore, status: {conditions: [{type: Ready, status: "True"}]}}`},
			watches: []string{stores + "?"},
		},
		{
			gate: "nodes", arguments: map[string]cty.Value{"count": num(1)},
			opens:   fixture{"/api/v1/nodes/blue-cp-01", readyNode},
			watches: []string{"/api/v1/nodes?"},
		},
		{
			gate: "announcement", arguments: inKubeSystem(), serves: servesLeases,
			objects: []fixture{{"/api/v1/nodes/green-w-01", readyNode}, {announced, assigned}},
			opens:   lease("green-w-01"),
			watches: []string{"/api/v1/nodes?", "/api/v1/services?", leases + "?"},
		},
		{
			gate: "webhook", arguments: map[string]cty.Value{"configuration": str("metallb")},
			objects: []fixture{configuration},
			opens: fixture{webhookPods, `{kind: EndpointSlice, ` +
				`metadata: {labels: {kubernetes.io/service-name: metallb-webhook-service}}, ` +
				`endpoints: [{}]}`},
			watches: []string{
				"/api/v1/namespaces/metallb-system/services?metadata.name=metallb-webhook-service",
				admission + "mutatingwebhookconfigurations?metadata.name=metallb", admission +
					"validatingwebhookconfigurations?metadata.name=metallb",
				"/apis/discovery.k8s.io/v1/namespaces/metallb-system/endpointslices?" +
					"kubernetes.io/service-name=metallb-webhook-service",
			},
		},
		{
			gate: "flux", arguments: map[string]cty.Value{"namespace": str("flux-system")},
			serves: []kind{
				{"kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations", true},
				{"helm.toolkit.fluxcd.io/v2", "HelmRelease", "helmreleases", true},
				{"source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories", true},
				{"source.toolkit.fluxcd.io/v1", "HelmRepository", "helmrepositories", true},
			},
			objects: []fixture{{fluxKustomizations + "flux-system", applied}},
			opens:   fixture{fluxRepository, repository},
			watches: []string{
				"/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases?",
				"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations?",
				"/apis/source.toolkit.fluxcd.io/v1/gitrepositories?",
			},
		},
	}
}

// onlyChanges polls so seldom that a wait can end in time by its watches alone.
func onlyChanges() gate.Policy {
	return gate.Policy{First: time.Hour, Most: time.Hour, Timeout: time.Hour}
}

func TestAGateWatchesTheObjectsThatItChecks(t *testing.T) {
	for _, tt := range watchedGates(t) {
		t.Run(tt.gate, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			f.kinds = tt.serves
			for _, p := range tt.objects {
				f.add(t, p.at, p.object)
			}
			g := newGate(t, tt.gate, f.kubeconfig(), tt.arguments)
			done := make(chan error)
			go func() { done <- gate.Wait(t.Context(), g, onlyChanges(), gate.Listener{}) }()
			var watches []string
			for range tt.watches {
				watches = append(watches, <-f.watching)
			}
			if slices.Sort(watches); !slices.Equal(watches, tt.watches) {
				t.Errorf("watches %q,\nwant %q", watches, tt.watches)
			}
			f.add(t, tt.opens.at, tt.opens.object)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAGateWaitsForItsKindToBeServed(t *testing.T) {
	f := newFakeAPI(t)
	stores := "/apis/external-secrets.io/v1/clustersecretstores"
	g := newGate(t, "condition", f.kubeconfig(), map[string]cty.Value{"kind": str("ClusterSecretStore")})
	done := make(chan error)
	go func() { done <- gate.Wait(t.Context(), g, onlyChanges(), gate.Listener{}) }()
	definitions := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if got := <-f.watching; got != definitions+"?" {
		t.Errorf("watches %s, want where the kind will be defined", got)
	}
	f.serves("external-secrets.io/v1", "ClusterSecretStore", "clustersecretstores", false)
	f.add(t, definitions+"/clustersecretstores.external-secrets.io", `{kind: CustomResourceDefinition}`)
	if got := <-f.watching; got != stores+"?" {
		t.Errorf("watches %s, want the kind itself", got)
	}
	f.add(t, stores+"/infisical", `{kind: ClusterSecretStore, status: {conditions: [{type: Ready, `+
		`status: "True"}]}}`)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestADefinitionIsFollowedUntilItsKindIsServed(t *testing.T) {
	f := newFakeAPI(t)
	f.add(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipaddresspools.metallb.io",
		`{kind: CustomResourceDefinition,
		spec: {group: metallb.io, names: {kind: IPAddressPool}, versions: [{name: v1beta1, served: true}]},
		status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "True"}]}}`)
	g := newGate(t, "crd", f.kubeconfig(),
		map[string]cty.Value{"names": cty.ListVal([]cty.Value{str("ipaddresspools.metallb.io")})})
	check, checks := g.Check, 0
	g.Check = func(ctx context.Context) error {
		err := check(ctx)
		// One check is the first, and two are due to the beginnings of the watches.
		if checks++; checks == 5 {
			f.serves("metallb.io/v1beta1", "IPAddressPool", "ipaddresspools", true) // and no object changes
		}
		return err
	}
	policy := onlyChanges()
	policy.Timeout = 30 * time.Second
	if err := gate.Wait(t.Context(), g, policy, gate.Listener{}); err != nil {
		t.Error(err)
	}
}

func TestAWatchOutlivesItsConnection(t *testing.T) {
	f := newFakeAPI(t)
	g := newGate(t, "nodes", f.kubeconfig(), map[string]cty.Value{"count": num(1)})
	done := make(chan error)
	go func() { done <- gate.Wait(t.Context(), g, onlyChanges(), gate.Listener{}) }()
	<-f.watching
	f.CloseClientConnections()
	<-f.watching
	f.add(t, "/api/v1/nodes/blue-cp-01", readyNode)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestChangedEndsWithItsContext(t *testing.T) {
	f := newFakeAPI(t)
	ctx, cancel := context.WithCancel(t.Context())
	g := newGate(t, "nodes", f.kubeconfig(), map[string]cty.Value{"count": num(1)})
	expect(t, f, g.Check(ctx), "0 of 1 nodes registered", false)
	changed := g.Changed(ctx)
	<-f.watching
	cancel()
	for range changed { // ends, or the test does not
	}
}

func TestChangedEndsWithoutACluster(t *testing.T) {
	changed := newGate(t, "nodes", nil, map[string]cty.Value{"count": num(1)}).Changed(t.Context())
	if _, open := <-changed; open {
		t.Error("told of a change")
	}
}
