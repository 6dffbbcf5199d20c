package httpjson

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func client(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &Client{Base: s.URL, Header: http.Header{"X-Token": {"hush"}}, HTTP: http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func TestDoSendsHeadersAndBodyOnce(t *testing.T) {
	requests := 0
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		if r.Header.Get("X-Token") != "hush" || r.Header.Get("User-Agent") != "castle" {
			t.Errorf("headers: %v", r.Header)
		}
		w.Write([]byte(`{"name": "blue"}`)) //nolint:errcheck // a test
	})
	var answer struct{ Name string }
	err := c.Do(t.Context(), http.MethodPost, "/a", map[string]string{"b": "c"}, &answer)
	if err != nil || answer.Name != "blue" || requests != 1 {
		t.Errorf("%v, %q, %d requests", err, answer.Name, requests)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Do(ctx, http.MethodGet, "/a", nil, nil); err == nil || strings.Contains(err.Error(), c.Base) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestDoReturnsTheServersMessages(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"a message": {401, `{"message": "Invalid credentials."}`, "Invalid credentials (401)"},
		"several errors": {403, `{"errors": ["permission\n denied", "no policy"]}`,
			"permission denied; no policy (403)"},
		"somebody's page":     {502, `<html>secret</html>`, "Bad Gateway (502)"},
		"a page with success": {200, `<html>secret</html>`, "the response is not the expected JSON (200)"},
	} {
		t.Run(name, func(t *testing.T) {
			client := client(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				w.Write([]byte(c.body)) //nolint:errcheck // a test
			})
			err := client.Do(t.Context(), http.MethodPost, "/", nil, &struct{}{})
			if err == nil || err.Error() != c.want || Status(err) != c.status {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestDoReportsWhereARedirectLeads(t *testing.T) {
	c := client(
		t,
		http.RedirectHandler("https://other.example/secret", http.StatusTemporaryRedirect).ServeHTTP,
	)
	err := c.Do(t.Context(), http.MethodGet, "/", nil, nil)
	if e, ok := err.(*Error); !ok || e.Redirect != "https://other.example" {
		t.Errorf("%v", err)
	}
}

func TestAddRootsNeedsACertificate(t *testing.T) {
	for _, authority := range []string{filepath.Join(t.TempDir(), "missing"), "/dev/null",
		"-----BEGIN nothing"} {
		if AddRoots(x509.NewCertPool(), authority) == nil {
			t.Errorf("%s is accepted", authority)
		}
	}
}

func TestRequestsThatMayBeRedirectedAreSentSideBySide(t *testing.T) {
	var first atomic.Int64
	others, all := make(chan struct{}, 2), make(chan struct{})
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			first.Add(1)
			return
		}
		if others <- struct{}{}; len(others) == cap(others) {
			close(all)
		}
		select {
		case <-all: // both are here, and neither has its answer
		case <-r.Context().Done():
		}
		if r.URL.Path == "/b" {
			http.Redirect(w, r, "https://elsewhere.example.org/b", http.StatusTemporaryRedirect)
		}
	})
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	request, to := c.Redirected(ctx, "POST /first", "POST /a", "POST /b")
	if request != "POST /b" || to != "https://elsewhere.example.org" || first.Load() != 1 ||
		ctx.Err() != nil {
		t.Errorf("%q, %q after %d first requests, %v", request, to, first.Load(), ctx.Err())
	}
}
