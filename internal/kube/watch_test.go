package kube

import (
	"context"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestChangedTellsOfWhatItsGateLooksAt(t *testing.T) {
	slice := `{kind: EndpointSlice, metadata: {labels: {kubernetes.io/service-name: web}}}`
	slices := "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	stores := "/apis/external-secrets.io/v1/clustersecretstores"
	for _, tt := range []struct {
		gate      string
		arguments map[string]cty.Value
		watches   string
		put       put
	}{
		{
			"endpoint_slice", map[string]cty.Value{"namespace": str("default"), "service": str("web")},
			slices + "?kubernetes.io/service-name=web", put{slices + "/a", slice},
		},
		{"workload", is("Deployment", "controller"), apps + "deployments?metadata.name=controller", put{apps + "deployments/controller", rolledOut}},
		{
			"condition", map[string]cty.Value{"kind": str("ClusterSecretStore")},
			stores + "?", put{stores + "/infisical", `{kind: ClusterSecretStore}`},
		},
	} {
		t.Run(tt.gate, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			f.serves("external-secrets.io/v1", "ClusterSecretStore", "clustersecretstores", false)
			ctx, cancel := context.WithCancel(t.Context())
			changed := newGate(t, tt.gate, f.kubeconfig(), tt.arguments).Changed(ctx)
			if got := <-f.watching; got != tt.watches {
				t.Errorf("watches %s, want %s", got, tt.watches)
			}
			f.put(t, tt.put.at, tt.put.object)
			if _, open := <-changed; !open {
				t.Error("the watch ended instead of telling of a change")
			}
			cancel()
			for range changed { // ends, or the test does not
			}
		})
	}
}

func TestChangedEndsWhereNothingCanBeWatched(t *testing.T) {
	f := newFakeAPI(t)
	for name, kubeconfig := range map[string][]byte{
		"no kind":  f.kubeconfig(),
		"no API":   kubeconfig("https://"+refusing(t), token, authority(t)),
		"no words": nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, "condition", kubeconfig, map[string]cty.Value{"kind": str("ClusterSecretStore"), "api_version": str("external-secrets.io/v1")})
			if _, open := <-g.Changed(t.Context()); open {
				t.Error("told of a change")
			}
		})
	}
}
