// Package proxmox reads and changes a Proxmox VE datacenter where Terraform must not be trusted alone:
// before a stage builds (the preflight vm_ids), after a destroy (Search) and in a nuke (Removal).
//
// Session, token and requests are those of github.com/Telmate/proxmox-api-go. castle gives it an http.Client
// whose transport sends each request once and keeps what the library drops: the reason phrase, in which
// releases before 8.4 put the only error text, the body's message and errors, and the status. Of the library
// these calls are used:
//
//   - NewClient and SetAPIToken: session, headers and token. Login is not used: castle has only API tokens.
//   - GetJsonRetryable with one try: every read. The typed reads (GetVmList, GetVmConfig, GetTaskExitstatus,
//     GetStorageContent, CheckPermissions) ask the same, but panic on unusual answers, or drop filters.
//   - Post and Delete: the plain requests of a removal.
//
// These are not used, since they sleep without a context or do more than their names say. StopVm and
// StatusChangeVm repeat a refused stop. DeleteVmParams also deletes the machine's HA resource and ignores
// the error. VmRef.Stop, VmRef.Delete, DeleteVolume and every wait for a task sleep through a cancellation,
// and some never time out. GetNextID repeats forever. Removal therefore has its own guarded sequence.
//
// Two facts shape the rest. The list of guests is filtered by permission, so a guest that is not listed may
// exist: only cluster/nextid knows whether an id is taken. And when the Terraform provider creates a machine
// whose id exists, it repeats the request and treats the same answer as its own success: from then on a
// foreign machine is in the state. The preflight is the only guard against that.
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

// Options say how to reach a datacenter.
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

// outcome is what a request came to. It travels in the request's context.
type outcome struct {
	err  error
	data json.RawMessage
	date string // the Date header
}

type outcomeKey struct{}

// transport sends the library's requests and keeps their outcomes.
type transport struct{ base http.RoundTripper }

// RoundTrip answers the library's request with the data, or with an empty API error, which is the one
// failure for which the library neither repeats the request nor sleeps.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	kept, ok := request.Context().Value(outcomeKey{}).(*outcome)
	if !ok {
		return nil, errors.New("request outside of Client.send")
	}
	body := []byte("{}")
	response, err := t.base.RoundTrip(request)
	if err != nil {
		kept.err = err
		response = &http.Response{Request: request, Header: http.Header{}}
	} else if body, kept.err = kept.read(response); kept.err != nil {
		body = []byte("{}")
	}
	response.StatusCode, response.Status = http.StatusOK, "200 OK"
	if kept.err != nil {
		response.StatusCode, response.Status = http.StatusInternalServerError, "500 see outcome"
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return response, nil
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
	var envelope struct{ Data json.RawMessage }
	if err := json.Unmarshal(body, &envelope); err != nil {
		return nil, fmt.Errorf("unexpected answer: %w", err)
	}
	o.data = envelope.Data
	return body, nil
}

// send makes one request through the library. It is never repeated: only the caller knows what a lost
// answer means.
func (c *Client) send(
	ctx context.Context, method, path string, request func(ctx context.Context, url string) error,
) (outcome, error) {
	kept := outcome{}
	limited, stop := context.WithTimeout(context.WithValue(ctx, outcomeKey{}, &kept), c.timeout)
	defer stop()
	err := request(limited, "/"+path)
	switch err = cmp.Or(kept.err, err); {
	case err == nil:
		return kept, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case limited.Err() != nil:
		err = fmt.Errorf("no answer within %s: %w", c.timeout, os.ErrDeadlineExceeded)
	}
	path, _, _ = strings.Cut(path, "?")
	return kept, fmt.Errorf("proxmox: %s %s: %w", method, path, err)
}

// get decodes the data of a path, which may have a query, into out, unless that is nil.
func (c *Client) get(ctx context.Context, path string, out any) error {
	_, err := c.read(ctx, path, out)
	return err
}

func (c *Client) read(ctx context.Context, path string, out any) (outcome, error) {
	return c.send(ctx, "get", path, func(ctx context.Context, url string) error {
		var answer map[string]any
		if err := c.api.GetJsonRetryable(ctx, url, &answer, 1); err != nil || out == nil {
			return err
		}
		return decode(answer["data"], out)
	})
}

// decode converts the library's untyped data.
func decode(data, out any) error {
	text, err := json.Marshal(data)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return fmt.Errorf("unexpected answer: %w", err)
	}
	return nil
}

// post and remove return the task that the request has started, "" if none.
func (c *Client) post(ctx context.Context, path string) (task string, err error) {
	return c.start(ctx, "post", path,
		func(ctx context.Context, url string) error { return c.api.Post(ctx, nil, url) })
}

func (c *Client) remove(ctx context.Context, path string) (task string, err error) {
	return c.start(ctx, "delete", path, c.api.Delete)
}

func (c *Client) start(
	ctx context.Context, method, path string, with func(context.Context, string) error,
) (task string, err error) {
	kept, err := c.send(ctx, method, path, with)
	if err == nil && len(kept.data) > 0 {
		if err = json.Unmarshal(kept.data, &task); err != nil {
			err = fmt.Errorf("proxmox: %s %s: unexpected answer: %w", method, path, err)
		}
	}
	return task, err
}
