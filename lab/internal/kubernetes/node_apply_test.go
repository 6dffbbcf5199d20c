package kubernetes_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// describeNodes shows what Talos' writes to a node come to, with the API server's own admission.
func describeNodes(t *testing.T, c *kubernetes.Cluster, nodes kubernetes.Nodes) {
	ctx := t.Context()
	for _, name := range []string{"cp-08", "worker-08"} {
		check(t, nodes.Run(ctx, kubernetes.Node{Name: name, Addresses: []string{"192.0.2.28"},
			OS: "Talos (v1.13.0)", Kubelet: "v1.36.0", CPUs: 4, MemoryBytes: 8 << 30,
			Taints: map[string]string{"example.org/gpu": "yes:NoSchedule"}}))
		defer func() {
			check(t, c.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
		}()
	}
	describe := func(name string, d kubernetes.Description, refusal string) *corev1.Node {
		t.Helper()
		d.ControlPlane = strings.HasPrefix(name, "cp")
		err := kubernetes.Describe(ctx, c.REST, name, d)
		if (refusal == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), refusal) {
			t.Fatalf("%s: %+v: %v, want %q", name, d, err, refusal)
		}
		node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		check(t, err)
		return node
	}
	type m = map[string]string
	zone := m{"topology.kubernetes.io/zone": "rack-1", "example.org/disk": "nvme"}
	role := m{"node-role.kubernetes.io/gpu": ""}

	a := m{"example.org/a": "b"}
	got := describe("worker-08", kubernetes.Description{Labels: zone, Annotations: a}, "")
	if got.Labels["topology.kubernetes.io/zone"] != "rack-1" || got.Annotations["example.org/a"] != "b" ||
		got.Annotations["talos.dev/owned-labels"] != `["example.org/disk","topology.kubernetes.io/zone"]` {
		t.Errorf("worker: %v %v", got.Labels, got.Annotations)
	}
	maps.Copy(role, zone)
	role["example.org/disk"] = "sata"
	got = describe("worker-08", kubernetes.Description{Labels: role},
		`nodes "worker-08" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/gpu`)
	if got.Labels["example.org/disk"] != "nvme" {
		t.Error("a refused update has changed a label")
	}
	describe("worker-08", kubernetes.Description{Taints: m{"example.org/gpu": "no:NoSchedule"}}, "")
	describe("worker-08", kubernetes.Description{Taints: m{"example.org/other": "NoSchedule"}},
		`node "worker-08" is not allowed to modify taints`)
	got = describe("worker-08", kubernetes.Description{}, "")
	if _, has := got.Labels["example.org/disk"]; has || len(got.Spec.Taints) == 0 {
		t.Errorf("what Talos no longer wants: %v %v", got.Labels, got.Spec.Taints)
	}

	got = describe("cp-08", kubernetes.Description{Labels: role,
		Taints: m{"example.org/gpu": "yes:NoSchedule", "example.org/other": "NoExecute"}}, "")
	if _, has := got.Labels["node-role.kubernetes.io/gpu"]; !has || len(got.Spec.Taints) < 2 {
		t.Errorf("control plane: %v %v", got.Labels, got.Spec.Taints)
	}
	got = describe("cp-08", kubernetes.Description{Taints: m{"example.org/gpu": "no:NoSchedule"}}, "")
	for _, taint := range got.Spec.Taints {
		if taint.Key == "example.org/other" || taint.Key == "example.org/gpu" && taint.Value != "no" {
			t.Errorf("taint %s is still there", taint.ToString())
		}
	}
}
