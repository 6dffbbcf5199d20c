package kube

import (
	"encoding/json"
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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const token = "token-of-the-test"

// fakeAPI is a Kubernetes API of a few paths. It serves objects at their paths, lists of the objects below,
// discovery of the configured kinds, watches of later objects, and any other answer that a test sets for a
// path.
type fakeAPI struct {
	*httptest.Server
	mu       sync.Mutex
	objects  map[string]map[string]any
	answers  map[string]answer // by path, or by another method than GET and path
	once     map[string]bool   // whose answer serves one request
	kinds    []kind
	watchers map[chan map[string]any]string // what each one watches
	watching chan string                    // a collection, once a watch of it has begun
	asked    []string                       // methods and paths
	from     []string                       // and where each came from
}

type answer struct {
	code int
	body any // a string goes out as it is
}

// hangs is the code of an answer that never comes.
const hangs = -1

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{
		objects:  map[string]map[string]any{},
		answers:  map[string]answer{},
		once:     map[string]bool{},
		watchers: map[chan map[string]any]string{},
		watching: make(chan string, 64),
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that fail are what some tests are about
	f.EnableHTTP2 = true
	f.StartTLS()
	t.Cleanup(func() {
		f.CloseClientConnections() // ends the watches
		f.Close()
	})
	return f
}

// add places an object, given as YAML, at its path.
func (f *fakeAPI) add(t *testing.T, at, object string) {
	t.Helper()
	o := map[string]any{}
	if err := yaml.Unmarshal([]byte(object), &o); err != nil {
		t.Fatalf("object for %s: %v", at, err)
	}
	meta, ok := o["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		o["metadata"] = meta
	}
	meta["name"] = path.Base(at)
	if root, rest, ok := strings.Cut(at, "/namespaces/"); ok {
		meta["namespace"], _, _ = strings.Cut(rest, "/")
		o["apiVersion"] = versionOf(root)
	} else {
		o["apiVersion"] = versionOf(path.Dir(path.Dir(at)))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[at] = o
	for watcher, collection := range f.watchers {
		if collection == path.Dir(at) || collection == everywhere(path.Dir(at)) {
			watcher <- o
		}
	}
}

// versionOf reads apps/v1 from /apis/apps/v1, and v1 from /api/v1.
func versionOf(root string) string {
	return strings.TrimPrefix(strings.TrimPrefix(root, "/apis/"), "/api/")
}

func (f *fakeAPI) answer(at string, code int, body any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[at] = answer{code, body}
}

func failure(code int, why metav1.StatusReason, message string) answer {
	return answer{code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: why, Message: message,
	}}
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		f.watch(w, r)
		return
	}
	f.mu.Lock()
	a := f.find(r)
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	f.from = append(f.from, r.RemoteAddr)
	f.mu.Unlock()
	if a.code == hangs {
		<-r.Context().Done()
		return
	}
	if text, ok := a.body.(string); ok {
		w.WriteHeader(a.code)
		io.WriteString(w, text) //nolint:errcheck // a client that is gone needs no answer
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.code)
	json.NewEncoder(w).Encode(a.body) //nolint:errcheck // likewise
}

func (f *fakeAPI) find(r *http.Request) answer {
	at := r.URL.Path
	asked := at
	if r.Method != http.MethodGet {
		asked = r.Method + " " + at
	}
	if a, ok := f.answers[asked]; ok {
		if f.once[asked] {
			delete(f.answers, asked)
		}
		return a
	}
	if r.Header.Get("Authorization") != "Bearer "+token {
		return failure(401, metav1.StatusReasonUnauthorized, "Unauthorized")
	}
	if r.Method == http.MethodPost {
		var object map[string]any
		if err := json.NewDecoder(r.Body).Decode(&object); err != nil ||
			r.URL.Query().Get("dryRun") != "All" {
			return failure(400, metav1.StatusReasonBadRequest, "this API only takes dry runs of objects")
		}
		return answer{201, object}
	}
	if object, ok := f.objects[at]; ok && r.Method == http.MethodPatch {
		var patch map[string]any
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			return failure(400, metav1.StatusReasonBadRequest, err.Error())
		}
		f.objects[at] = merge(object, patch)
		return answer{200, f.objects[at]}
	}
	if a, ok := f.secrets(r); ok {
		return a
	}
	if _, ok := f.objects[at]; ok && r.Method == http.MethodDelete {
		delete(f.objects, at)
		return answer{200, metav1.Status{Status: metav1.StatusSuccess}}
	}
	if object, ok := f.objects[at]; ok {
		return answer{200, object}
	}
	if document, ok := f.discovery(at, r.Header.Get("Accept")); ok {
		return answer{200, document}
	}
	if f.collects(at) {
		return answer{200, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{},
			"items": f.below(r)}}
	}
	return failure(404, metav1.StatusReasonNotFound, "not found")
}

// merge applies a merge patch to an object, and returns another one.
func merge(object, patch map[string]any) map[string]any {
	merged := maps.Clone(object)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range patch {
		if deeper, is := value.(map[string]any); is {
			below, _ := merged[key].(map[string]any)
			merged[key] = merge(below, deeper)
		} else if merged[key] = value; value == nil {
			delete(merged, key)
		}
	}
	return merged
}

// below lists the objects of a collection, in all namespaces if its path names none.
func (f *fakeAPI) below(r *http.Request) []any {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		selector = labels.Nothing()
	}
	items := []any{}
	for _, at := range slices.Sorted(maps.Keys(f.objects)) {
		if path.Dir(at) != r.URL.Path && everywhere(path.Dir(at)) != r.URL.Path {
			continue
		}
		set := labels.Set{}
		meta := f.objects[at]["metadata"].(map[string]any)
		if given, ok := meta["labels"].(map[string]any); ok {
			for key, value := range given {
				set[key] = value.(string)
			}
		}
		if selector.Matches(set) {
			items = append(items, f.objects[at])
		}
	}
	return items
}

// everywhere is the path of the same collection in all namespaces.
func everywhere(collection string) string {
	root, rest, ok := strings.Cut(collection, "/namespaces/")
	if !ok {
		return collection
	}
	_, rest, _ = strings.Cut(rest, "/")
	return root + "/" + rest
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan map[string]any, 16)
	f.mu.Lock()
	f.watchers[events] = r.URL.Path
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, events)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	f.watching <- r.URL.Path + "?" + r.URL.Query().Get("labelSelector") + r.URL.Query().Get("fieldSelector")
	for {
		select {
		case <-r.Context().Done():
			return
		case object := <-events:
			announced := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
				"metadata": object["metadata"]}
			json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED",
				"object": announced}) //nolint:errcheck // a client that is gone needs no answer
			w.(http.Flusher).Flush()
		}
	}
}
