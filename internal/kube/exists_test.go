package kube

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestOnlyAnObjectWithTheLabelsIsAdopted(t *testing.T) {
	f := newFakeAPI(t)
	f.serves("v1", "Secret", "secrets", true)
	at := "/api/v1/namespaces/flux-system/secrets/"
	f.add(t, at+"ours", "{apiVersion: v1, kind: Secret, metadata: {labels: {made-by: castle, more: x}}}")
	f.add(t, at+"theirs", "{apiVersion: v1, kind: Secret, metadata: {labels: {made-by: somebody}}, "+
		"stringData: {password: hush}}")
	f.add(t, at+"going", `{apiVersion: v1, kind: Secret, metadata: {labels: {made-by: castle}, `+
		`deletionTimestamp: "2026-01-01T00:00:00Z"}}`)
	for name, want := range map[string]string{
		"ours": "true", "none": "false",
		"theirs": "secret flux-system/theirs exists and is not castle's: it lacks the label made-by=castle; ",
		"going":  "secret flux-system/going is being deleted",
	} {
		q, err := ExistsTypes()[0].New("kubernetes_object", gate.Target{Kubeconfig: f.kubeconfig()},
			gate.Values{
				"api_version": cty.StringVal("v1"), "kind": cty.StringVal("Secret"),
				"namespace": cty.StringVal("flux-system"), "name": cty.StringVal(name),
				"labels": cty.MapVal(map[string]cty.Value{"made-by": cty.StringVal("castle")}),
			})
		if err != nil {
			t.Fatal(err)
		}
		there, err := q.Lookup(t.Context())
		got := map[bool]string{true: "true", false: "false"}[there]
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || strings.Contains(got, "hush") {
			t.Errorf("%s: %s", name, got)
		}
		if gate.IsPermanent(err) != (name == "theirs") {
			t.Errorf("%s: permanent is %v", name, gate.IsPermanent(err))
		}
	}
}
