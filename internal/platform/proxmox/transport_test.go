package proxmox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
)

// answering is a client whose requests all get one raw answer, and the number of requests. An empty answer
// is a connection that is torn.
func answering(t *testing.T, answer string) (*Client, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		io.Copy(io.Discard, r.Body) //nolint:errcheck // a test
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()         //nolint:errcheck // a test
		conn.Write([]byte(answer)) //nolint:errcheck // likewise
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(platform.Account{Endpoint: server.URL, Token: token, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	return c, &requests
}

func TestEachFailureIsPrintedAfterOneRequest(t *testing.T) {
	const foreign = "https://ADDRESS answered, but not as Proxmox VE does: "
	const head = "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
	for name, test := range map[string]struct {
		answer, want string
		kind         Kind
	}{
		"a 401 without a body": {"HTTP/1.1 401 No ticket" + head, "401 No ticket", Unauthorized},
		"a 403": {"HTTP/1.1 403 Forbidden" + head +
			`{"data": null, "message": "Permission check failed (/vms/421, VM.Audit)\n"}`,
			"403 Permission check failed (/vms/421, VM.Audit)", Forbidden},
		"a 500 with only a reason phrase": {"HTTP/1.1 500 VM 421 is locked (backup)" + head + `{"data":null}`,
			"500 VM 421 is locked (backup)", Refused},
		"a 400 with parameters": {"HTTP/1.1 400 Parameter verification failed." + head +
			`{"data": null, "errors": {"vmid": "VM 421 already exists"}}`,
			"400 Parameter verification failed. vmid: VM 421 already exists", Taken},
		"errors of another type": {"HTTP/1.1 500 odd" + head + `{"errors": [1], "message": {}}`, "500 odd",
			Refused},
		"a redirect": {"HTTP/1.1 301 Moved\r\nLocation: https://127.0.0.1:1/" + head, "301 Moved",
			Refused},
		"a node that is offline": {"HTTP/1.1 595 No route to host" + head, "595 No route to host",
			Unreachable},
		"a torn connection": {"", "EOF", Other},
		"a torn body": {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "unexpected EOF",
			Other},
		"somebody's page": {"HTTP/1.1 200 OK" + head + "<html>",
			foreign + "6 bytes that are not its JSON (application/json)", Other},
		"a list": {"HTTP/1.1 200 OK" + head + "[]",
			foreign + "2 bytes that are not its JSON", Other},
		"a proxy's page for 404": {"HTTP/1.1 404 Not Found" + head + "<html>421 does not exist",
			foreign + "404 Not Found (application/json)", Other},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			t.Run(name+", "+method, func(t *testing.T) {
				c, requests := answering(t, test.answer)
				began := time.Now()
				_, err := c.session.Call(t.Context(), method, "nodes/a?b=c", nil)
				want := "proxmox: " + strings.ToLower(method) + " nodes/a: " +
					strings.Replace(test.want, "https://ADDRESS", c.session.Address, 1)
				if err == nil || !strings.HasPrefix(err.Error(), want) || KindOf(err) != test.kind {
					t.Errorf("got %v (kind %d), want %s (kind %d)", err, KindOf(err), want, test.kind)
				}
				if n := requests.Load(); n != 1 {
					t.Errorf("%d requests were made, want 1", n)
				}
				if took := time.Since(began); took > 900*time.Millisecond {
					t.Errorf("the call has slept: it took %s", took)
				}
			})
		}
	}
}

func TestARequestEndsWithItsContextOrItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second) // the library sleeps after a failed read
		c, err := newClient(token, "https://proxmox.example:8006", hanging{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = c.Admitted(t.Context())
		if err == nil || err.Error() != "proxmox: get version: no answer within 40s: i/o timeout" {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != session.Timeout {
			t.Errorf("the timeout took %s", took)
		}
		why := errors.New("interrupt")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		began = time.Now()
		if _, err := c.session.Call(ctx, http.MethodPost, "nodes", nil); !errors.Is(err, why) ||
			time.Since(began) != time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

// hanging never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}
