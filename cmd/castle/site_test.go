package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// visited is a web site on this machine with configurable answers. It records its
// requests:
//
//	site [DIR]          starts it, with the files of a folder; the Terraform variable site is its URL
//	answers PATH CODE   sets the status of this path; the default is 200
//	asked PATH          waits for a request of this path since the last answers
type visited struct {
	mu    sync.Mutex
	codes map[string]int
	asked map[string]chan struct{} // closed by the first request
	files http.Handler
}

type visitedKey struct{}

func newVisited() *visited {
	return &visited{codes: map[string]int{}, asked: map[string]chan struct{}{}}
}

func (v *visited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if code, told := v.codes[r.URL.Path]; told {
		w.WriteHeader(code)
		select {
		case <-v.asked[r.URL.Path]:
		default:
			close(v.asked[r.URL.Path])
		}
	} else if v.files != nil {
		v.files.ServeHTTP(w, r)
	}
}

func site(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: site [dir]")
	}
	v := ts.Value(visitedKey{}).(*visited)
	if len(args) == 1 {
		v.files = http.FileServer(http.Dir(ts.MkAbs(args[0])))
	}
	server := httptest.NewServer(v)
	ts.Defer(server.Close)
	ts.Setenv("TF_VAR_site", server.URL)
}

func answers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: answers path code")
	}
	code, err := strconv.Atoi(args[1])
	ts.Check(err)
	v := ts.Value(visitedKey{}).(*visited)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.codes[args[0]], v.asked[args[0]] = code, make(chan struct{})
}

func asked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: asked path")
	}
	v := ts.Value(visitedKey{}).(*visited)
	v.mu.Lock()
	asked := v.asked[args[0]]
	v.mu.Unlock()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		ts.Fatalf("nobody asked for %s", args[0])
	}
}
