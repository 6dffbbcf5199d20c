package gates

import (
	"encoding/json"
	"testing"

	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// The API server has to refuse what it would refuse to the workload's controller, and nothing else.
func TestTheNextPodIsTheControllers(t *testing.T) {
	set := &client.Object{}
	if err := set.UnmarshalJSON([]byte(`{"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": {"name": "vault", "namespace": "vault", "uid": "1"}, "spec": {
		"volumeClaimTemplates": [{"metadata": {"name": "data"}}],
		"template": {"metadata": {"labels": {"app": "vault"}}, "spec": {
			"volumes": [{"name": "config"}], "containers": [{"name": "vault"}]}}}}`)); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(podOf(set))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"vault"},` +
		`"name":"vault-castle","namespace":"vault","ownerReferences":[{"apiVersion":"apps/v1",` +
		`"controller":true,"kind":"StatefulSet","name":"vault","uid":"1"}]},"spec":{` +
		`"containers":[{"name":"vault"}],"volumes":[{"name":"config"},{"name":"data",` +
		`"persistentVolumeClaim":{"claimName":"data"}}]}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if again := podOf(set); len(again.Object["spec"].(map[string]any)["volumes"].([]any)) != 2 {
		t.Errorf("the workload itself is changed: %v", set.Object)
	}
}
