package operators

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes/kubernetestest"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// metricsManifest is metrics-server, once with the argument that Talos' kubelets need, and once without.
const metricsManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: kube-system, labels: {k8s-app: metrics-server}}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME, k8s-app: metrics-server}}
    spec:
      containers:
      - name: metrics-server
        image: registry.k8s.io/metrics-server/metrics-server:v0.8.1
        args: [--secure-port=10250, ARGUMENT]
        ports: [{name: https, containerPort: 10250}]
        resources: {requests: {cpu: 100m, memory: 200Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {ports: [{name: https, port: 443, targetPort: https}], selector: {k8s-app: metrics-server}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  {group: metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100, versionPriority: 100,
   insecureSkipTLSVerify: true, service: {name: metrics-server, namespace: kube-system}}
`

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The API server aggregates what the double of metrics-server serves, while it is ready.
func TestMetricsServer(t *testing.T) {
	if !testing.Verbose() {
		klog.SetLogger(logr.Discard())
	}
	config, err := kubernetestest.Config(t.TempDir())
	check(t, err)
	c, err := kubernetes.Start(t.Context(), config)
	check(t, err)
	objects, err := dynamic.NewForConfig(c.REST)
	check(t, err)
	check(t, kubernetes.Nodes{Client: c.Client}.Run(t.Context(),
		kubernetes.Node{Name: "worker", Addresses: []string{"127.0.0.1"}, CPUs: 4, MemoryBytes: 8 << 30}))
	apply := func(name, argument string) {
		text := strings.NewReplacer("NAME", name, "ARGUMENT", argument).Replace(metricsManifest)
		for one := range strings.SplitSeq(text, "---") {
			o := &unstructured.Unstructured{}
			check(t, yaml.Unmarshal([]byte(one), &o.Object))
			in := schema.GroupVersionResource{Group: o.GroupVersionKind().Group, Version: "v1",
				Resource: strings.ToLower(o.GetKind()) + "s"}
			_, err := objects.Resource(in).Namespace(o.GetNamespace()).Apply(t.Context(), o.GetName(), o,
				metav1.ApplyOptions{FieldManager: "test", Force: true})
			check(t, err)
		}
	}
	m := newMetricsServer(cluster.New(c.Client, objects, 0, time.Now), c.Routes)
	defer m.Close()
	const api = "/apis/metrics.k8s.io/v1beta1/"
	http, err := rest.HTTPClientFor(c.REST)
	check(t, err)
	get := func(path string) string {
		answer, err := http.Get(c.REST.Host + strings.TrimSuffix(api+path, "/"))
		check(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		check(t, err)
		return string(text)
	}
	becomes := func(path, part string) {
		t.Helper()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(30 * time.Second); ; <-tick.C {
			check(t, m.Look(t.Context()))
			if have := get(path); strings.Contains(have, part) {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%s: %s, want %s", path, have, part)
			}
		}
	}
	pod := func(name string) string {
		pods, err := c.Client.CoreV1().Pods("kube-system").List(t.Context(),
			metav1.ListOptions{LabelSelector: "app=" + name})
		check(t, err)
		if len(pods.Items) != 1 {
			return ""
		}
		return fmt.Sprintf("%s %s", pods.Items[0].Spec.NodeName, pods.Items[0].Status.Phase)
	}

	apply("distrustful", "--v=0")
	becomes("nodes", "service unavailable") // the endpoint gets not ready
	apply("metrics-server", "--kubelet-insecure-tls")
	becomes("nodes", `"kind":"NodeMetrics"`)
	if have := pod("distrustful"); have != "worker Pending" {
		t.Errorf("metrics-server that does not trust the kubelets: %s", have)
	}
	becomes("namespaces/kube-system/pods?labelSelector=app%3Dmetrics-server",
		`"usage":{"cpu":"50m","memory":"102400Ki"}`)
	becomes("nodes/worker", `"usage":{"cpu":"170m","memory":"593920Ki"}`) // with the Pod's
	becomes("pods?labelSelector=app%3Dother", `"items":[]`)
	becomes("nodes/none", `nodemetrics.metrics.k8s.io \"none\" not found`)
	becomes("namespaces/default/pods/none", `podmetrics.metrics.k8s.io \"default/none\" not found`)
	list := &metav1.APIResourceList{}
	check(t, json.Unmarshal([]byte(get("")), list))
	if len(list.APIResources) != 2 {
		t.Errorf("resources: %v", list)
	}
	check(t, c.Client.AppsV1().Deployments("kube-system").Delete(t.Context(), "metrics-server",
		metav1.DeleteOptions{}))
	becomes("nodes", "service unavailable")
}

// A container that has just begun has no usage yet.
func TestMetricsServerKnowsNoNewContainer(t *testing.T) {
	s := newStage(10)
	m := newMetricsServer(s.World, routes{})
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning,
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.Time)}}}}}}
	if m.knows(p) {
		t.Error("it knows the usage at once")
	}
	if s.Time = s.Time.Add(1500 * time.Millisecond); !m.knows(p) {
		t.Error("it does not know the usage after 15 s at ten times the speed")
	}
}
