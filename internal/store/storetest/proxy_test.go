package storetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestProxyMakesTheTroubleItIsAskedFor(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body) //nolint:errcheck // the client sees it
	}))
	t.Cleanup(backend.Close)
	p := NewProxy(t, &Server{Name: "s3", Address: backend.Listener.Addr().String()})
	client := &http.Client{Timeout: 2 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	post := func(text string) (string, error) {
		response, err := client.Post("http://"+p.Address, "text/plain", strings.NewReader(text))
		if err != nil {
			return "", err
		}
		defer response.Body.Close() //nolint:errcheck // it was only read
		body, err := io.ReadAll(response.Body)
		return response.Status + " " + string(body), err
	}
	expect := func(want, fails string) {
		t.Helper()
		got, err := post("hello")
		failed := ""
		if err != nil {
			failed = err.Error()
		}
		if !strings.HasPrefix(got, want) || (err == nil) != (fails == "") ||
			!strings.Contains(failed, fails) {
			t.Errorf("%q, %v; want %q, %q", got, err, want, fails)
		}
	}
	expect("200 OK hello", "")
	p.Refuse()
	expect("", "refused")
	p.Pass(t)
	expect("200 OK hello", "")
	p.Answer(http.StatusServiceUnavailable, "SlowDown")
	expect("503 Service Unavailable <Error><Code>SlowDown</Code>", "")
	p.Pass(t)
	p.Cut() // the connection that the client has kept
	expect("200 OK hello", "")
	p.Delay(100 * time.Millisecond)
	began := time.Now()
	expect("200 OK hello", "")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("answered after %s, too soon", took)
	}
	p.Delay(0)
	p.Stall()
	expect("", "Timeout exceeded")
	p.Pass(t)
	expect("200 OK hello", "")
	p.CutAfter(1000)
	if got, err := post(strings.Repeat("x", 100_000)); err == nil {
		t.Errorf("the connection was not cut: %s", got[:20])
	}
	client.CloseIdleConnections()
	expect("200 OK hello", "")
	p.Pass(t)
	if got, err := post(strings.Repeat("x", 100_000)); err == nil {
		t.Errorf("a connection that was to be cut was not: %s", got[:20])
	}
	expect("200 OK hello", "")
}
