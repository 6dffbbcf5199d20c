package store

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

// TestGCSConforms checks castle's requests against a bucket in memory that understands them as Google
// documents them. What the real service does in a race is not tested.
func TestGCSConforms(t *testing.T) {
	server := httptest.NewServer(&googleBucket{objects: map[string][]byte{}})
	t.Cleanup(server.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", server.Listener.Addr().String())
	conforms(t, &storetest.Server{Name: "gs", URL: "gs://castle-state/homelab"})
	if _, err := openedWithin(t, "gs://nothing").Read(t.Context(), "key"); kindOf(err) != Missing {
		t.Errorf("read from a bucket that does not exist: %v", err)
	}
}

type googleBucket struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (g *googleBucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, upload := strings.CutPrefix(r.URL.EscapedPath(), "/upload")
	escaped, found := strings.CutPrefix(path, "/storage/v1/b/castle-state/o")
	name, err := url.PathUnescape(strings.TrimPrefix(escaped, "/"))
	query := r.URL.Query()
	var value []byte
	if upload && err == nil {
		name, value, err = uploaded(r)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	old, exists := g.objects[name]
	status, answer := http.StatusOK, []byte("{}")
	switch {
	case err != nil:
		status = http.StatusBadRequest
	case !found:
		status = http.StatusNotFound
	case upload && exists && query.Get("ifGenerationMatch") == "0":
		status = http.StatusPreconditionFailed
	case upload:
		g.objects[name] = value
	case name == "":
		answer = g.page(query.Get("prefix"), query.Get("pageToken"))
	case !exists:
		status = http.StatusNotFound
	case r.Method == http.MethodDelete:
		delete(g.objects, name)
		status, answer = http.StatusNoContent, nil
	case query.Get("alt") == "media":
		answer = old
	}
	if status >= http.StatusBadRequest {
		answer = fmt.Appendf(nil, `{"error":{"code":%d,"message":"by the test: %v"}}`, status, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(answer) //nolint:errcheck // the client sees it
}

// page returns at most 1,000 names, as Google does.
func (g *googleBucket) page(prefix, after string) []byte {
	var page struct {
		Items []struct {
			Name string `json:"name"`
		} `json:"items"`
		Next string `json:"nextPageToken,omitempty"`
	}
	for _, name := range slices.Sorted(maps.Keys(g.objects)) {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if len(page.Items) == 1000 {
			page.Next = page.Items[999].Name
			break
		}
		page.Items = append(page.Items, struct {
			Name string `json:"name"`
		}{name})
	}
	text, err := json.Marshal(page)
	if err != nil {
		panic(err)
	}
	return text
}

// uploaded reads an upload in two parts: the object as JSON, and its content.
func uploaded(r *http.Request) (name string, value []byte, err error) {
	_, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return "", nil, err
	}
	parts := multipart.NewReader(r.Body, parameters["boundary"])
	first, err := parts.NextPart()
	if err != nil {
		return "", nil, err
	}
	var object struct{ Name string }
	if err := json.NewDecoder(first).Decode(&object); err != nil {
		return "", nil, err
	}
	second, err := parts.NextPart()
	if err != nil {
		return "", nil, err
	}
	value, err = io.ReadAll(second)
	return object.Name, value, err
}
