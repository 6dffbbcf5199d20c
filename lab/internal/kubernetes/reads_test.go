package kubernetes_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// seen are requests to the API of reads, by URL: the process's own do not reach it when nothing has changed.
type seen struct{ lists atomic.Int64 }

func (s *seen) ask(_, url string) {
	if url == "/apis/storage.k8s.io/v1/csidrivers" {
		s.lists.Add(1)
	}
}

// readAgain changes an object of each kind that the process reads from memory, as somebody else.
func readAgain(ctx context.Context, t *testing.T, c *kubernetes.Cluster, requests *seen) {
	own, err := dynamic.NewForConfig(c.REST)
	check(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig)
	check(t, err)
	other, err := dynamic.NewForConfig(config)
	check(t, err)
	tested := map[string]bool{}
	for _, text := range changing {
		var object unstructured.Unstructured
		check(t, object.UnmarshalJSON([]byte(text)))
		gvk := object.GroupVersionKind()
		in, _ := meta.UnsafeGuessKindToResource(gvk)
		tested[in.Resource] = true
		mine := own.Resource(in).Namespace(object.GetNamespace())
		await := func(what string, is func(error) bool) {
			tick, over := time.NewTicker(10*time.Millisecond), time.After(5*time.Second)
			defer tick.Stop()
			for {
				_, err := mine.Get(ctx, object.GetName(), metav1.GetOptions{})
				if is(err) {
					return
				}
				select {
				case <-tick.C:
				case <-over:
					t.Fatalf("%s %s: not %s: %v", gvk.Kind, object.GetName(), what, err)
				}
			}
		}
		await("missing", apierrors.IsNotFound)
		_, err := other.Resource(in).Namespace(object.GetNamespace()).Create(ctx, &object,
			metav1.CreateOptions{})
		check(t, err)
		await("there", func(err error) bool { return err == nil })
	}
	for _, resource := range kubernetes.Stored() {
		if !tested[resource] {
			t.Errorf("%s are read from memory, and nothing shows that they are read again", resource)
		}
	}
	before := requests.lists.Load()
	for range 20 {
		_, err := own.Resource(schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1",
			Resource: "csidrivers"}).List(ctx, metav1.ListOptions{})
		check(t, err)
	}
	if asked := requests.lists.Load() - before; asked > 2 { // two, if ten seconds have passed
		t.Errorf("asked %d times for what has not changed", asked)
	}
}

// changing are objects that nothing in a lab makes, one of each kind.
var changing = []string{
	`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "changing"}}`,
	`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "changing"}}`,
	`{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "changing",
		"namespace": "changing"}}`,
	`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "changing", "namespace": "default"}}`,
	`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "changing", "namespace": "default"}}`,
	`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "changing", "namespace": "default"},
		"spec": {"ports": [{"port": 80}]}}`,
	`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "changing", "namespace": "default"},
		"spec": {"nodeName": "nowhere", "containers": [{"name": "one", "image": "example.org/one"}]}}`,
	`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "changing"}, "spec": {
		"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
		"hostPath": {"path": "/changing"}}}`,
	`{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "changing",
		"namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
		"resources": {"requests": {"storage": "1Gi"}}}}`,
	`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "changing", "namespace": "default"},
		"spec": {"replicas": 0, ` + changingPods + `}}`,
	`{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "changing", "namespace": "default"},
		"spec": {"replicas": 0, ` + changingPods + `}}`,
	`{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "changing", "namespace": "default"},
		"spec": {` + changingPods + `}}`,
	`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "changing", "namespace": "default"},
		"spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
		"containers": [{"name": "one", "image": "example.org/one"}]}}}}`,
	`{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "changing",
		"namespace": "default"}, "spec": {"maxUnavailable": 1}}`,
	`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "changing",
		"namespace": "default"}}`,
	`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "changing",
		"namespace": "default"}, "addressType": "IPv4", "endpoints": []}`,
	`{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "changing"},
		"provisioner": "changing.example.org"}`,
	`{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "changing"},
		"spec": {"drivers": []}}`,
	`{"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "changing.example.org"}}`,
	`{"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "changing"},
		"spec": {"attacher": "changing.example.org", "nodeName": "changing",
		"source": {"persistentVolumeName": "changing"}}}`,
	`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": {"name": "changing"}}`,
	`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": {"name": "turns.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
		"names": {"kind": "Turn", "plural": "turns"}, "versions": [{"name": "v1", "served": true,
		"storage": true, "schema": {"openAPIV3Schema": {"type": "object",
		"x-kubernetes-preserve-unknown-fields": true}}}]}}`,
	`{"apiVersion": "example.org/v1", "kind": "Turn", "metadata": {"name": "one", "namespace": "default"}}`,
}

const changingPods = `"selector": {"matchLabels": {"app": "changing"}}, "template": {"metadata": {"labels":
	{"app": "changing"}}, "spec": {"nodeSelector": {"none": "such"}, "containers": [{"name": "one",
	"image": "example.org/one"}]}}`
