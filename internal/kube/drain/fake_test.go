package drain

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// fakeCluster is an API with a few objects, without Longhorn.
type fakeCluster struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	// evict answers an eviction. A Pod whose eviction it permits is deleted.
	evict func(pod string) *metav1.Status
	asked []string // the Pods of evictions
	down  int      // so many requests are refused
}

func newFakeCluster(t *testing.T, objects ...string) (*fakeCluster, gate.Target) {
	t.Helper()
	f := &fakeCluster{objects: map[string]map[string]any{},
		evict: func(string) *metav1.Status { return nil }}
	for _, text := range objects {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		meta := o["metadata"].(map[string]any)
		at := map[any]string{"Node": "/api/v1/nodes/", "Pod": "/api/v1/pods/",
			"PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets/"}[o["kind"]]
		meta["resourceVersion"], meta["uid"] = "1", meta["name"]
		f.objects[at+meta["name"].(string)] = o
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	t.Cleanup(f.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	return f, gate.Target{Kubeconfig: fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: blue
clusters: [{name: blue, cluster: {server: %q, certificate-authority-data: %s}}]
contexts: [{name: blue, context: {cluster: blue, user: admin}}]
users: [{name: admin, user: {token: a}}]`, f.URL, base64.StdEncoding.EncodeToString(authority))}
}

func (f *fakeCluster) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var answer any
	at := r.URL.Path
	object, there := f.objects[at]
	switch {
	case f.down > 0:
		f.down--
		answer = &metav1.Status{Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: "starting"}
	case at == "/api" || at == "/apis":
		answer = map[string]any{"kind": "APIGroupDiscoveryList", "items": []any{}}
	case strings.HasSuffix(at, "/eviction"):
		pod := path.Base(path.Dir(at))
		f.asked = append(f.asked, pod)
		if answer = f.evict(pod); answer == (*metav1.Status)(nil) {
			answer = &metav1.Status{Status: metav1.StatusSuccess, Code: 201}
			delete(f.objects, "/api/v1/pods/"+pod)
		}
	case there && r.Method == http.MethodPatch:
		f.objects[at] = patched(object, r.Body)
		answer = f.objects[at]
	case there:
		answer = object
	case strings.Count(at, "/") == 4 && strings.HasPrefix(at, "/apis/") || strings.Count(at, "/") == 3:
		items := []any{}
		for _, one := range slices.Sorted(maps.Keys(f.objects)) {
			spec, _ := f.objects[one]["spec"].(map[string]any)
			field, on := r.URL.Query().Get("fieldSelector"), fmt.Sprint("spec.nodeName=", spec["nodeName"])
			if path.Dir(one) == at && (field == "" || field == on) {
				items = append(items, f.objects[one])
			}
		}
		answer = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	default:
		answer = &metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}
	}
	w.Header().Set("Content-Type", "application/json")
	if status, is := answer.(*metav1.Status); is {
		status.Kind, status.APIVersion = "Status", "v1"
		w.WriteHeader(int(status.Code))
	}
	json.NewEncoder(w).Encode(answer) //nolint:errcheck // a client that is gone needs no answer
}

// patched is an object after the merge patches that castle sends to nodes.
func patched(object map[string]any, body io.Reader) map[string]any {
	var patch, o corev1.Node
	var fields struct {
		Metadata struct{ Annotations map[string]*string }
	}
	text, _ := io.ReadAll(body) //nolint:errcheck // the test then fails
	before, _ := json.Marshal(object)
	for _, err := range []error{json.Unmarshal(text, &patch), json.Unmarshal(text, &fields),
		json.Unmarshal(before, &o)} {
		if err != nil {
			panic(err)
		}
	}
	o.Spec.Unschedulable = patch.Spec.Unschedulable
	for key, value := range fields.Metadata.Annotations {
		if value == nil {
			delete(o.Annotations, key)
		} else {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, *value)
		}
	}
	after, _ := json.Marshal(o)
	var result map[string]any
	if err := json.Unmarshal(after, &result); err != nil {
		panic(err)
	}
	return result
}

// pod is a Pod of a ReplicaSet on the node w-01.
func pod(name string) string {
	return fmt.Sprintf(`{kind: Pod, apiVersion: v1, metadata: {namespace: web, name: %s, labels: {app: %s},
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: u, controller: true}]},
  spec: {nodeName: w-01}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`, name,
		name)
}

// budgetFor is a budget for the Pods with a label, with its status.
func budgetFor(name, app, spec, status string) string {
	return fmt.Sprintf(`{kind: PodDisruptionBudget, apiVersion: policy/v1, metadata: {namespace: web,
  name: %s, generation: 1}, spec: {selector: {matchLabels: {app: %s}}%s},
  status: {%s, observedGeneration: 1}}`, name, app, spec, status)
}

// refusedByBudget is the API server's answer to an eviction that a budget does not allow now.
func refusedByBudget() *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: 429, Reason: metav1.StatusReasonTooManyRequests,
		Message: "Cannot evict pod as it would violate the pod's disruption budget.",
		Details: &metav1.StatusDetails{RetryAfterSeconds: 10, Causes: []metav1.StatusCause{{
			Type:    "DisruptionBudget",
			Message: "The disruption budget web needs 1 healthy pods and has 1 currently"}}}}
}
