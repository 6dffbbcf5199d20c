package operators

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const (
	metricsAPI = "metrics.k8s.io/v1beta1"
	// scrape is metrics-server's --metric-resolution: it knows no container that is younger.
	scrape = 15 * time.Second
)

// metricsServer answers for metrics-server: kubectl top. The API server asks it only where a chart or a
// manifest has made the APIService. No container runs, so the usage is made up: a part of what each one
// requests. A node uses the sum of its Pods, and a bit of its own.
type metricsServer struct {
	w     *cluster.View
	https webhook
}

func newMetricsServer(w *cluster.View, routes Routes) *metricsServer {
	m := &metricsServer{w, webhook{w: w, routes: routes, service: "metrics-server",
		fill: func(context.Context, string, []byte) error { return nil }}} // nobody fills in an APIService
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/"+metricsAPI, func(out http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(out, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [
			{"name": "nodes", "kind": "NodeMetrics", "verbs": ["get", "list"]},
			{"name": "pods", "kind": "PodMetrics", "namespaced": true, "verbs": ["get", "list"]}]}`,
			metricsAPI)
	})
	for path, kind := range map[string]string{"nodes": "Node", "nodes/{name}": "Node", "pods": "Pod",
		"namespaces/{namespace}/pods": "Pod", "namespaces/{namespace}/pods/{name}": "Pod"} {
		mux.HandleFunc("GET /apis/"+metricsAPI+"/"+path, func(out http.ResponseWriter, in *http.Request) {
			code, with := m.answer(in, kind)
			out.WriteHeader(code)
			json.NewEncoder(out).Encode(with) //nolint:errcheck // whoever hung up wants no answer
		})
	}
	m.https.handler = http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		mux.ServeHTTP(out, in)
	})
	return m
}

func (m *metricsServer) Close() { m.https.close() }

// Look serves while a Deployment of metrics-server has a ready replica.
func (m *metricsServer) Look(ctx context.Context) error {
	d, err := m.w.DeploymentThat(ctx, func(d *appsv1.Deployment) bool {
		return cmp.Or(d.Labels["app.kubernetes.io/name"], d.Labels["k8s-app"]) == "metrics-server"
	})
	if err != nil || d == nil || len(d.Spec.Template.Spec.Containers[0].Ports) == 0 {
		m.https.close()
		return err
	}
	port := int(d.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort)
	if m.https.workload != d.Name || m.https.port != port {
		m.https.close()
		m.https.workload, m.https.port = d.Name, port
	}
	return m.https.look(ctx, d.Namespace)
}

// answer tells the usage of one Node or Pod, or of those that the selectors take.
func (m *metricsServer) answer(in *http.Request, kind string) (int, any) {
	name, namespace, query := in.PathValue("name"), in.PathValue("namespace"), in.URL.Query()
	of := metav1.ListOptions{LabelSelector: query.Get("labelSelector"),
		FieldSelector: query.Get("fieldSelector")}
	if name != "" {
		of.FieldSelector = "metadata.name=" + name
	}
	all, err := m.read(in.Context(), kind, namespace, of)
	switch {
	case err != nil:
		return http.StatusInternalServerError, apierrors.NewInternalError(err).Status()
	case name == "":
		return http.StatusOK, map[string]any{"apiVersion": metricsAPI, "kind": kind + "MetricsList",
			"metadata": struct{}{}, "items": all}
	case len(all) == 0:
		of := schema.GroupResource{Group: "metrics.k8s.io", Resource: strings.ToLower(kind) + "metrics"}
		name = strings.TrimPrefix(namespace+"/"+name, "/")
		return http.StatusNotFound, apierrors.NewNotFound(of, name).Status()
	}
	return http.StatusOK, all[0]
}

// read returns what each of these Pods or Nodes uses.
func (m *metricsServer) read(ctx context.Context, kind, namespace string,
	of metav1.ListOptions) ([]any, error) {
	ofPods, ofNodes := of, metav1.ListOptions{}
	if kind == "Node" {
		ofPods, ofNodes = ofNodes, of
	}
	pods, err := m.w.Typed.CoreV1().Pods(namespace).List(ctx, ofPods)
	if err != nil {
		return nil, err
	}
	nodes, err := m.w.Typed.CoreV1().Nodes().List(ctx, ofNodes)
	if err != nil {
		return nil, err
	}
	all := []any{} // the JSON of no items is [], not null
	for _, n := range nodes.Items {
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) { // no kubelet tells
			continue
		}
		cpu, memory := int64(120), int64(480<<20)
		for _, p := range pods.Items {
			if p.Spec.NodeName != n.Name || !m.knows(&p) {
				continue
			}
			var containers []any
			for _, c := range p.Spec.Containers {
				a, b := consumed(p.Name+c.Name, c.Resources.Requests)
				cpu, memory = cpu+a, memory+b
				containers = append(containers, map[string]any{"name": c.Name, "usage": usage(a, b)})
			}
			if kind == "Pod" {
				all = append(all, m.metrics(kind, p.ObjectMeta, "containers", containers))
			}
		}
		if kind == "Node" {
			all = append(all, m.metrics(kind, n.ObjectMeta, "usage", usage(cpu, memory)))
		}
	}
	return all, nil
}

func (m *metricsServer) metrics(kind string, o metav1.ObjectMeta, key string, value any) any {
	now := metav1.NewTime(m.w.Now())
	return map[string]any{"kind": kind + "Metrics", "apiVersion": metricsAPI, "metadata": metav1.ObjectMeta{
		Name: o.Name, Namespace: o.Namespace, Labels: o.Labels, CreationTimestamp: now},
		"timestamp": now, "window": scrape.String(), key: value}
}

// knows reports whether all containers of a Pod have run for long enough.
func (m *metricsServer) knows(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && !slices.ContainsFunc(p.Status.ContainerStatuses,
		func(s corev1.ContainerStatus) bool {
			return s.State.Running == nil ||
				m.w.Now().Sub(s.State.Running.StartedAt.Time).Seconds()*m.w.Speed() < scrape.Seconds() &&
					m.w.Speed() > 0
		})
}

// consumed is always the same for a container: half of what it requests, or something small.
func consumed(name string, requests corev1.ResourceList) (cpu, memory int64) {
	h := fnv.New32a()
	h.Write([]byte(name))
	chance := int64(h.Sum32() % 32)
	return cmp.Or(requests.Cpu().MilliValue()/2, 1+chance),
		cmp.Or(requests.Memory().Value()/2, (12+chance)<<20)
}

func usage(cpu, memory int64) any {
	return map[string]string{"cpu": fmt.Sprintf("%dm", cpu), "memory": fmt.Sprintf("%dKi", memory>>10)}
}
