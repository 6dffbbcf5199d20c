package kubernetes

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"
)

// reads answers the lab's own reading of an object or of a list as before, while nothing of its kind has
// changed in etcd. The doubles of operators read all they are about several times a second; kube-apiserver's
// answers to that took half of an idle lab's computing time.
type reads struct {
	next    http.RoundTripper
	changes *changes

	mu    sync.Mutex
	known map[string]answer
}

type answer struct {
	count  int // of changes, before it was asked for
	at     time.Time
	status int
	header http.Header
	body   []byte
}

const (
	// keeps bounds the age of an answer: in seconds, the lab would recover from what etcd does not tell.
	keeps = 10 * time.Second
	// mostKnown bounds the memory.
	mostKnown = 4096
)

func (r *reads) RoundTrip(q *http.Request) (*http.Response, error) {
	kind, whole := kindOfPath(q.URL.Path)
	if q.Method != http.MethodGet {
		if kind != "" {
			defer r.changes.add(kind) // etcd tells it a moment later
		}
		return r.next.RoundTrip(q)
	}
	// What may be old, or goes on, is not the same when it is asked for again.
	if query := q.URL.Query(); !whole || kind == "" || query.Has("resourceVersion") || query.Has("watch") {
		return r.next.RoundTrip(q)
	}
	count, follows := r.changes.of(kind)
	key := q.Header.Get("Accept") + " " + q.URL.RequestURI()
	r.mu.Lock()
	a, found := r.known[key]
	r.mu.Unlock()
	if found && follows && a.count == count && time.Since(a.at) < keeps {
		return a.response(q), nil
	}
	a = answer{count: count, at: time.Now()}
	response, err := r.next.RoundTrip(q)
	if err != nil || response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		return response, err
	}
	a.status, a.header = response.StatusCode, response.Header
	a.body, err = io.ReadAll(response.Body)
	if err != nil {
		response.Body.Close() //nolint:errcheck // it is the reading that failed
		return nil, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	if follows {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known == nil || len(r.known) == mostKnown {
			r.known = map[string]answer{}
		}
		r.known[key] = a
	}
	return a.response(q), nil
}

func (a answer) response(q *http.Request) *http.Response {
	return &http.Response{Status: http.StatusText(a.status), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header.Clone(), Request: q,
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body))}
}
