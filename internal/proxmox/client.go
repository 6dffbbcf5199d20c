// Package proxmox reads and changes a Proxmox VE datacenter where castle must not rely on Terraform alone:
// before a stage builds (the preflight vm_ids), after a destroy (Search) and in a nuke (Removal).
//
// Session, token and requests are those of github.com/Telmate/proxmox-api-go. castle gives it an
// http.Client whose transport sends each request once and keeps the parts that the library drops: the
// status, the reason phrase (the only error text before release 8.4), and the body's message and errors.
// castle uses NewClient, SetAPIToken, GetJsonRetryable with one try for every read, Post and Delete. It
// does not use:
//
//   - Login: castle has only API tokens.
//   - GetVmList, GetVmConfig, GetTaskExitstatus, GetStorageContent, CheckPermissions and other typed
//     reads: they panic on unusual answers, drop filters or read more than requested.
//   - StopVm and StatusChangeVm, which repeat a refused stop, and DeleteVmParams, which also deletes
//     the machine's HA resource and ignores the error.
//   - VmRef's methods, DeleteVolume and every wait for a task: they sleep through a cancellation, and
//     some never time out. GetNextID repeats for ever. Removal has its own guarded sequence.
//
// Two facts shape the rest. Proxmox filters the list of guests by permission, so a guest that is not listed
// may exist: only cluster/nextid knows whether an id is taken. When the Terraform provider creates a machine
// whose id exists, it repeats the request and treats the same answer as success. From then on a foreign
// machine is in the state; the preflight is the only guard against that.
package proxmox

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
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	pve "github.com/Telmate/proxmox-api-go/proxmox"

	"github.com/ephemeral-castle/castle/internal/httpjson"
)

// Options configure the connection to a datacenter.
type Options struct {
	Endpoint string // https://host:8006; a path is ignored
	Token    string // user@realm!name=secret
	// CA is a PEM certificate, or the path of a file with one, that is trusted besides the system's
	// (SSL_CERT_FILE included).
	CA       string
	Insecure bool          // accept any certificate
	Timeout  time.Duration // of one request; 40 s if zero, a little more than a node waits for another
}

// Client reads one datacenter; only a Removal changes it. It is safe for concurrent use.
type Client struct {
	api     *pve.Client
	token   string
	timeout time.Duration
}

// NewClient makes a client. It does not contact the datacenter.
func NewClient(o Options) (*Client, error) {
	endpoint, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: o.Insecure} //nolint:gosec // asked for
	if o.CA != "" {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("ca_file: system certificates: %w", err)
		}
		if err := httpjson.AddRoots(config.RootCAs, o.CA); err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
	}
	return newClient(o, "https://"+endpoint.Host+"/api2/json", &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, IdleConnTimeout: time.Minute,
	})
}

func newClient(o Options, address string, base http.RoundTripper) (*Client, error) {
	c := &Client{token: o.Token, timeout: cmp.Or(o.Timeout, 40*time.Second)}
	var err error
	c.api, err = pve.NewClient(address, &http.Client{Transport: transport{base}}, "", nil, "", 0, false)
	if err != nil {
		return nil, err
	}
	name, secret, _ := strings.Cut(o.Token, "=")
	var id pve.ApiTokenID
	if id.Parse(name) == nil { // without a token, Proxmox answers 401
		c.api.SetAPIToken(id, pve.ApiTokenSecret(secret))
	}
	return c, nil
}

func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf(`endpoint %q is not an address such as "https://proxmox.example:8006"`,
			endpoint)
	}
	return u, nil
}

// outcome is the result of a request. It travels in the request's context.
type outcome struct {
	err  error
	data json.RawMessage
	date string // the Date header
}

type outcomeKey struct{}

// transport sends the library's requests and keeps their outcomes.
type transport struct{ base http.RoundTripper }

// RoundTrip answers the library with the body or an empty API error. That error is the only failure after
// which the library neither repeats the request nor sleeps.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	kept, ok := request.Context().Value(outcomeKey{}).(*outcome)
	if !ok {
		return nil, errors.New("request outside of Client.call")
	}
	var body []byte
	response, err := t.base.RoundTrip(request)
	if err == nil {
		body, err = kept.read(response)
	}
	answer := &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Header: http.Header{},
		Request: request}
	if kept.err = err; err != nil {
		body, answer.Status = []byte("{}"), "500 see outcome"
		answer.StatusCode = http.StatusInternalServerError
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

func (o *outcome) read(response *http.Response) ([]byte, error) {
	defer response.Body.Close() //nolint:errcheck // it is only read
	o.date = response.Header.Get("Date")
	body, err := io.ReadAll(io.LimitReader(response.Body, 32<<20))
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, newError(response, body)
	}
	envelope := struct{ Data *json.RawMessage }{&o.data}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return nil, fmt.Errorf("unexpected answer: %w", err)
	}
	return body, nil
}

// get decodes the data of a path, which may have a query, into out, unless that is nil.
func (c *Client) get(ctx context.Context, path string, out any) error {
	_, err := c.call(ctx, http.MethodGet, path, out)
	return err
}

// call makes one request through the library and never repeats it: only the caller knows the meaning of a
// lost answer.
func (c *Client) call(ctx context.Context, method, path string, out any) (kept outcome, err error) {
	limited, stop := context.WithTimeout(context.WithValue(ctx, outcomeKey{}, &kept), c.timeout)
	defer stop()
	switch method {
	case http.MethodPost:
		err = c.api.Post(limited, nil, "/"+path)
	case http.MethodDelete:
		err = c.api.Delete(limited, "/"+path)
	default:
		var data map[string]any
		err = c.api.GetJsonRetryable(limited, "/"+path, &data, 1)
	}
	if err = cmp.Or(kept.err, err); err == nil && out != nil && len(kept.data) > 0 {
		if err = json.Unmarshal(kept.data, out); err != nil {
			err = fmt.Errorf("unexpected answer: %w", err)
		}
	}
	switch {
	case err == nil:
		return kept, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case limited.Err() != nil:
		err = fmt.Errorf("no answer within %s: %w", c.timeout, os.ErrDeadlineExceeded)
	}
	path, _, _ = strings.Cut(path, "?")
	return kept, fmt.Errorf("proxmox: %s %s: %w", strings.ToLower(method), path, err)
}
