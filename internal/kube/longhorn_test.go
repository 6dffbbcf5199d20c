package kube

import (
	"reflect"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestLastReplicasAreThoseWithoutAnIntactOneElsewhere(t *testing.T) {
	f := newFakeAPI(t)
	target := gate.Target{Kubeconfig: f.kubeconfig()}
	if got, err := LastReplicas(t.Context(), target); len(got) > 0 || err != nil {
		t.Errorf("without Longhorn: %v, %v", got, err)
	}
	f = newFakeAPI(t)
	f.serves("longhorn.io/v1beta2", "Replica", "replicas", true)
	for name, spec := range map[string]string{
		"a-1": "volumeName: a, nodeID: w-01, healthyAt: 2026-01-01T00:00:00Z, failedAt: ''",
		"a-2": "volumeName: a, nodeID: w-02, healthyAt: 2026-01-01T00:00:00Z, failedAt: ''",
		"b-1": "volumeName: b, nodeID: w-01, healthyAt: 2026-01-01T00:00:00Z, failedAt: ''",
		"b-2": "volumeName: b, nodeID: w-02, healthyAt: 2026-01-01T00:00:00Z, failedAt: 2026-01-02T00:00:00Z",
		"c-1": "volumeName: c, nodeID: w-01, healthyAt: 2026-01-01T00:00:00Z, failedAt: ''",
		"c-2": "volumeName: c, nodeID: w-02, healthyAt: '', failedAt: ''",
		"d-1": "volumeName: d, nodeID: w-02, healthyAt: 2026-01-01T00:00:00Z, failedAt: ''",
	} {
		f.add(t, "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/replicas/"+name,
			"kind: Replica\nspec: {"+spec+"}")
	}
	got, err := LastReplicas(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()})
	want := map[string][]string{"w-01": {"b", "c"}, "w-02": {"d"}}
	if !reflect.DeepEqual(got, want) || err != nil {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
