package kube

import (
	"context"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

func TestAnObjectExistsOrNotByItsKindInTerraform(t *testing.T) {
	f := newFakeAPI(t)
	f.serves("v1", "ConfigMap", "configmaps", true)
	f.serves("v1", "Namespace", "namespaces", false)
	f.serves("apiregistration.k8s.io/v1", "APIService", "apiservices", false)
	f.serves("example.com/v1", "Thing", "things", true)
	f.add(t, "/api/v1/namespaces/a/configmaps/there", "kind: ConfigMap")
	f.add(t, "/api/v1/namespaces/a", "kind: Namespace")
	f.add(t, "/apis/apiregistration.k8s.io/v1/apiservices/v1.x", "kind: APIService")
	target := gate.Target{Kubeconfig: f.kubeconfig()}
	for _, c := range []struct {
		kind, namespace, name string
		want, fails           bool
	}{
		{"config_map", "a", "there", true, false},
		{"config_map", "b", "there", false, false},
		{"namespace", "", "a", true, false},
		{"namespace", "", "b", false, false},
		{"api_service", "", "v1.x", true, false},
		{"thing", "a", "there", false, true}, // another group's: who knows which
	} {
		got, err := Exists(t.Context(), target, c.kind, c.namespace, c.name)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s %s/%s: %v, %v", c.kind, c.namespace, c.name, got, err)
		}
	}
}

func TestAReleaseExistsInItsNamespaceAlone(t *testing.T) {
	f := newFakeAPI(t)
	f.serves("v1", "Secret", "secrets", true)
	f.revision(t, "metallb-system", "metallb", "1", "deployed", "1")
	target := gate.Target{Kubeconfig: f.kubeconfig()}
	for namespace, want := range map[string]bool{"metallb-system": true, "default": false} {
		got, err := ReleaseExists(t.Context(), target, namespace, "metallb")
		if got != want || err != nil {
			t.Errorf("%s: %v, %v", namespace, got, err)
		}
	}
	if got, err := ReleaseExists(t.Context(), target, "metallb-system", "metal"); got || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAKindIsLookedUpInTheListOfItsGroup(t *testing.T) {
	for apiVersion, want := range map[string]string{"v1": "GET /api", "example.com/v1": "GET /apis"} {
		f := newFakeAPI(t)
		f.serves(apiVersion, "Thing", "things", true)
		err := client.Do(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()},
			func(ctx context.Context, a *client.API) error {
				_, err := a.Resolve(ctx, apiVersion, "Thing")
				return err
			})
		if err != nil || !slices.Equal(f.asked, []string{want}) {
			t.Errorf("%s: %q, %v", apiVersion, f.asked, err)
		}
	}
}
