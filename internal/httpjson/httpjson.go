// Package httpjson is castle's client for APIs that exchange JSON over HTTP. It repeats a GET that got no
// proper response, and sends any other request once: only the caller knows whether that may be repeated. A
// response other than success becomes an *Error with its status and the server's own messages. The error
// never holds the body, which may contain a secret. It follows no redirect.
package httpjson

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// largest bounds a response's body.
const largest = 8 << 20

// Client sends requests to one server. A header of the client is sent with every request.
type Client struct {
	Base   string // https://vault.example.org:8200/v1/
	Header http.Header
	HTTP   http.Client
}

// Error is a response other than success.
type Error struct {
	Status   int
	Messages []string // the server's; empty if it sent none that can be read
	Redirect string   // scheme and host of the Location header
	Foreign  bool     // the body is not what the server sends, but a proxy's page or cut short
}

func (e *Error) Error() string {
	text := strings.TrimSuffix(strings.Join(strings.Fields(strings.Join(e.Messages, "; ")), " "), ".")
	return fmt.Sprintf("%s (%d)", cmp.Or(text, http.StatusText(e.Status)), e.Status)
}

// Status returns the HTTP status of an *Error, and 0 for any other error.
func Status(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// Passes reports whether the same request may succeed a moment later.
func (e *Error) Passes() bool {
	return e.Status >= http.StatusInternalServerError || e.Status == http.StatusTooManyRequests ||
		e.Foreign && e.Status < http.StatusMultipleChoices
}

// NotExpected is the error of a successful response that the server does not send.
func NotExpected(status int) *Error {
	return &Error{Status: status, Messages: []string{"the response is not the expected JSON"}, Foreign: true}
}

// NotFound reports whether the server itself answered that there is no such object, and not a proxy.
func NotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound && !e.Foreign
}

// Do sends body, unless it is nil, and decodes the response into answer, unless that is nil. The server's
// errors are expected as "message" or "errors". A GET is repeated.
func (c *Client) Do(ctx context.Context, method, path string, body, answer any) error {
	send := func(ctx context.Context) error { return c.once(ctx, method, path, body, answer) }
	if method == http.MethodGet {
		return Repeat(ctx, send)
	}
	return send(ctx)
}

func (c *Client) once(ctx context.Context, method, path string, body, answer any) error {
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.Base+path, &sent)
	if err != nil {
		return err
	}
	request.Header = c.Header.Clone()
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "castle")
	sender := c.HTTP
	sender.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := sender.Do(request)
	if err != nil {
		return errors.Unwrap(err) // the rest repeats the address
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	received, err := io.ReadAll(io.LimitReader(response.Body, largest))
	switch {
	case err != nil:
		return err
	case response.StatusCode >= http.StatusMultipleChoices:
		return newError(response, received)
	case answer == nil || response.StatusCode == http.StatusNoContent:
		return nil
	}
	if json.Unmarshal(received, answer) != nil {
		return NotExpected(response.StatusCode) // the decoder's message could quote a secret
	}
	return nil
}

// Redirected sends requests such as "POST login" without a body, and returns the first in their order that
// the server redirects, and to which scheme and host. Both are empty if it redirects none. One that gets no
// answer is not redirected. The first request opens the connection; the others follow side by side.
func (c *Client) Redirected(ctx context.Context, requests ...string) (request, to string) {
	found := make([]string, len(requests))
	var all sync.WaitGroup
	for i, request := range requests {
		all.Go(func() {
			method, path, _ := strings.Cut(request, " ")
			if e, is := errors.AsType[*Error](c.Do(ctx, method, path, nil, nil)); is {
				found[i] = e.Redirect
			}
		})
		if i == 0 {
			all.Wait()
		}
	}
	all.Wait()
	if i := slices.IndexFunc(found, func(to string) bool { return to != "" }); i >= 0 {
		return requests[i], found[i]
	}
	return "", ""
}

func newError(response *http.Response, body []byte) *Error {
	e := &Error{Status: response.StatusCode}
	if to, err := response.Location(); err == nil {
		e.Redirect = to.Scheme + "://" + to.Host
	}
	var answer struct {
		Message string   `json:"message"`
		Errors  []string `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil {
		e.Foreign = true
		return e
	}
	if answer.Message != "" {
		e.Messages = []string{answer.Message}
	}
	e.Messages = append(e.Messages, answer.Errors...)
	return e
}

// AddRoots adds the certificates of authority, PEM text or the path of a PEM file, to pool.
func AddRoots(pool *x509.CertPool, authority string) error {
	pem, name := []byte(authority), "the text"
	if !strings.Contains(authority, "-----BEGIN") {
		var err error
		if pem, err = os.ReadFile(authority); err != nil {
			return err
		}
		name = authority
	}
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no PEM certificate", name)
	}
	return nil
}

// repeatTime bounds a request with all its repetitions.
const repeatTime = time.Minute

func pauses() wait.Backoff {
	return wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 5}
}

// Repeat sends a request that changes nothing. If it fails for a reason that may pass, Repeat sends it again,
// up to five times within a minute and with growing pauses. A pause takes at most a quarter of the time that
// ctx has left. So a caller with little time gets the reason of the failure and not a timeout.
func Repeat(ctx context.Context, send func(context.Context) error) error {
	limited, stop := context.WithTimeout(ctx, repeatTime)
	defer stop()
	deadline, _ := limited.Deadline()
	began, backoff := time.Now(), pauses()
	var last error
	for tries := 1; ; tries++ {
		err := send(limited)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if last == nil || limited.Err() == nil { // not that of a request which the minute has cut
			last = err
		}
		pause := backoff.Step()
		if tries > pauses().Steps || !passes(last) || time.Until(deadline) < 4*pause {
			if tries > 1 {
				last = fmt.Errorf("%w; tried %d times in %s", last, tries,
					time.Since(began).Round(time.Second))
			}
			return last
		}
		select {
		case <-limited.Done():
		case <-time.After(pause):
		}
	}
}

// passes reports whether the same request may succeed a moment later: the connection failed, the server
// failed, or something else answered in its place. It does not wait again for an answer that came too late.
func passes(err error) bool {
	if known, ok := errors.AsType[interface {
		error
		Passes() bool
	}](err); ok {
		return known.Passes()
	}
	name, isName := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case isName && name.IsNotFound, isNetwork && network.Timeout(), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(tls.RecordHeaderError)),
		errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)),
		errors.Is(err, http.ErrSchemeMismatch):
		return false
	}
	return true
}
