// Package proxmox reads and changes a Proxmox VE datacenter where castle must not rely on Terraform alone:
// before a stage builds (the preflight vm_ids), after a destroy (Search) and in a nuke (Removal).
//
// Session, token and requests are those of github.com/Telmate/proxmox-api-go: NewClient, SetAPIToken,
// GetJsonRetryable with one try, Post and Delete. castle gives it an http.Client whose transport sends each
// request once and keeps the parts that the library drops: the status, the reason phrase (the only error text
// before release 8.4), and the body's message and errors. The library's typed reads panic on unusual answers
// or drop filters; its StopVm, deletions and waits repeat what was refused, sleep through a cancellation or
// never time out. So Removal has its own guarded sequence.
//
// Two facts shape the rest. Proxmox filters the list of guests by permission, so a guest that is not listed
// may exist: only cluster/nextid knows whether an id is taken. When the Terraform provider creates a machine
// whose id exists, it repeats the request and treats the same answer as success. From then on a foreign
// machine is in the state; the preflight is the only guard against that.
package proxmox

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	pve "github.com/Telmate/proxmox-api-go/proxmox"

	"github.com/ephemeral-castle/castle/internal/httpjson"
)

// requestTimeout bounds one request. It is a little more than a node waits for another one.
const requestTimeout = 40 * time.Second

// Options configure the connection to a datacenter.
type Options struct {
	Endpoint string // https://host:8006; a path is ignored
	Token    string // user@realm!name=secret
	CA       string // a PEM certificate, or the path of one, that is trusted besides the system's
	Insecure bool   // accept any certificate
}

// Client reads one datacenter; only a Removal changes it. It is safe for concurrent use.
type Client struct {
	api *pve.Client
	// User is the token's name without its secret: user@realm!name.
	User string
}

// NewClient makes a client. It does not contact the datacenter.
func NewClient(o Options) (*Client, error) {
	host, err := hostOf(o.Endpoint)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{InsecureSkipVerify: o.Insecure} //nolint:gosec // asked for
	if o.CA != "" {
		if config.RootCAs, err = x509.SystemCertPool(); err == nil {
			err = httpjson.AddRoots(config.RootCAs, o.CA)
		}
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
	}
	return newClient(o.Token, "https://"+host+"/api2/json", &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, IdleConnTimeout: time.Minute,
	})
}

func newClient(token, address string, base http.RoundTripper) (*Client, error) {
	api, err := pve.NewClient(address, &http.Client{Transport: transport{base}}, "", nil, "", 0, false)
	if err != nil {
		return nil, err
	}
	name, secret, _ := strings.Cut(token, "=")
	var id pve.ApiTokenID
	if id.Parse(name) == nil { // without a token, Proxmox answers 401
		api.SetAPIToken(id, pve.ApiTokenSecret(secret))
	}
	return &Client{api, name}, nil
}

// hostOf returns the host and port of an endpoint.
func hostOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf(`endpoint %q is not an address such as "https://proxmox.example:8006"`, address)
	}
	return u.Host, nil
}

// outcome is the result of a request. It travels in the request's context.
type outcome struct {
	data any // where the data is decoded to; nil if nobody needs it
	date string
	err  error
}

type outcomeKey struct{}

// transport sends the library's requests once, and keeps their outcomes.
type transport struct{ base http.RoundTripper }

// RoundTrip answers the library with an empty object, whatever the outcome is: after most failures it would
// sleep or repeat the request.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	kept := request.Context().Value(outcomeKey{}).(*outcome)
	response, err := t.base.RoundTrip(request)
	if err == nil {
		err = kept.read(response)
	}
	kept.err = err
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

func (o *outcome) read(response *http.Response) error {
	defer response.Body.Close() //nolint:errcheck // it is only read
	o.date = response.Header.Get("Date")
	body, err := io.ReadAll(io.LimitReader(response.Body, 32<<20))
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return newError(response, body)
	}
	envelope := struct{ Data any }{o.data}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return fmt.Errorf("unexpected answer: %w", err)
	}
	return nil
}

// get reads the data of a path, which may have a query.
func get[T any](ctx context.Context, c *Client, path string) (data T, err error) {
	_, err = c.call(ctx, http.MethodGet, path, &data)
	return data, err
}

// pathOf formats a path. Texts among args are escaped.
func pathOf(path string, args ...any) string {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = url.PathEscape(text)
		}
	}
	return fmt.Sprintf(path, args...)
}

// call makes one request through the library and never repeats it: only the caller knows the meaning of a
// lost answer. It decodes the data into out, unless that is nil, and returns the Date header.
func (c *Client) call(ctx context.Context, method, path string, out any) (date string, err error) {
	kept := &outcome{data: out}
	limited, stop := context.WithTimeout(context.WithValue(ctx, outcomeKey{}, kept), requestTimeout)
	defer stop()
	switch method {
	case http.MethodPost:
		err = c.api.Post(limited, nil, "/"+path)
	case http.MethodDelete:
		err = c.api.Delete(limited, "/"+path)
	default:
		err = c.api.GetJsonRetryable(limited, "/"+path, new(map[string]any), 1)
	}
	switch err = cmp.Or(kept.err, err); {
	case err == nil:
		return kept.date, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case limited.Err() != nil:
		err = fmt.Errorf("no answer within %s: %w", requestTimeout, os.ErrDeadlineExceeded)
	}
	path, _, _ = strings.Cut(path, "?")
	return kept.date, fmt.Errorf("proxmox: %s %s: %w", strings.ToLower(method), path, err)
}

// Error is an answer other than success.
type Error struct {
	Code   int            // HTTP status; 595 and above: a node does not answer
	Text   string         // from the body's message, else from the reason phrase
	Params map[string]any // the problems of parameters, by name
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Code, e.Text)
	for _, name := range sortedKeys(e.Params) {
		text += fmt.Sprintf(" %s: %s", name, strings.TrimSpace(fmt.Sprint(e.Params[name])))
	}
	return text
}

// newError reads the text from wherever this release puts it.
func newError(response *http.Response, body []byte) *Error {
	_, reason, _ := strings.Cut(response.Status, " ")
	var envelope struct {
		Message string
		Errors  map[string]any
	}
	_ = json.Unmarshal(body, &envelope) // an empty body is usual for 401 and 595
	text := cmp.Or(strings.TrimSpace(envelope.Message), reason)
	if to, err := response.Location(); err == nil {
		text = fmt.Sprintf("%s; it redirects to %s://%s, where castle does not send the token", text,
			to.Scheme, to.Host)
	}
	return &Error{response.StatusCode, text, envelope.Errors}
}

// Transient reports whether the same request may succeed later: the node or its proxy cannot answer now, or
// another task holds the guest's lock.
func (e *Error) Transient() bool {
	busy := []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout}
	return slices.Contains(busy, e.Code) || e.Code >= 595 || strings.Contains(e.Text, "can't lock file") ||
		strings.Contains(e.Text, "got lock request timeout")
}

// Kind classifies an error for castle.
type Kind int

// The kinds of errors.
const (
	Other        Kind = iota
	Refused           // an answer of any other kind, of an API that is there
	Unauthorized      // the token itself is refused
	Forbidden         // the token lacks a privilege
	Missing           // the guest does not exist, at least not on that node
	Taken             // a guest with this id exists already
	Unreachable       // the node does not answer
)

// KindOf returns the kind of an error. Missing and Taken share their status with other answers, so only
// Proxmox's texts tell them apart.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case !errors.As(err, &e):
		return Other
	case e.Code >= 595:
		return Unreachable
	case e.Code == http.StatusUnauthorized:
		return Unauthorized
	case strings.Contains(e.Error(), "already exists"):
		return Taken
	case e.Code == http.StatusNotFound, strings.Contains(e.Text, "does not exist"):
		return Missing
	case e.Code == http.StatusForbidden:
		return Forbidden
	}
	return Refused
}
