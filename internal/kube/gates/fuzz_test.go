package gates

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// FuzzObject judges any object that an API may answer. Without a status, no gate of it opens.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "a", "generation": 2},
		"spec": {"replicas": 1},
		"status": {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1,
		"availableReplicas": 1, "readyReplicas": 1,
		"conditions": [{"type": "Available", "status": "True"}]}}`,
		`{"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "a"},
		"status": {"conditions": [{"type": "Failed", "status": "True"}]}}`,
		`{"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "a"},
		"status": {"desiredNumberScheduled": 0}}`,
		`{"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
		"metadata": {"name": "a.b"}, "spec": {"group": "b", "names": {"kind": "A"},
		"versions": [{"name": "v1", "served": true}],
		"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "LS0t"}}}},
		"status": {"conditions": [{"type": "NamesAccepted", "status": "True"},
		{"type": "Established", "status": "True"}]}}`,
		`{"kind": "Service", "apiVersion": "v1", "metadata": {"name": "a"},
		"spec": {"type": "LoadBalancer", "loadBalancerIP": "192.0.2.1"},
		"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}`,
		`{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"},
		"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
		`{"kind": "Kustomization", "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
		"metadata": {"name": "a", "generation": 1},
		"status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}}`,
		`{"kind": "A", "apiVersion": "v1", "metadata": null, "spec": [], "status": "x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		object := &client.Object{}
		if object.UnmarshalJSON(text) != nil {
			t.Skip("client-go refuses it")
		}
		_, reports := object.Object["status"].(map[string]any)
		opens := map[string]bool{
			"workload":      checkWorkload(object, 1) == nil,
			"crd":           CheckDefinition(object, "") == nil,
			"condition":     lacks(object, "Ready", "True", nil) == nil,
			"field":         lacks(object, "", "", map[string]string{"status.state": "deployed"}) == nil,
			"fields":        lacks(object, "", "", map[string]string{"status.*.*.status": "True"}) == nil,
			"empty field":   lacks(object, "", "", map[string]string{"status.error": ""}) == nil,
			"load_balancer": checkAddress(t.Context(), object, "", false) == nil,
			"flux":          unsettled(object) == nil,
		}
		if node, err := client.As[corev1.Node](*object); err == nil {
			opens["nodes"] = NodeUnready(node) == nil
		}
		for gate, open := range opens {
			if open && !reports {
				t.Errorf("gate %s opens by an object without a status", gate)
			}
			if open && object.GetDeletionTimestamp() != nil && gate != "nodes" && gate != "workload" {
				t.Errorf("gate %s opens by an object that is being deleted", gate)
			}
		}
	})
}
