// Package proxmox asks a Proxmox VE datacenter the few things castle must know
// before and after Terraform touches it, and answers the preflight vm_ids.
//
// It is a client of its own on net/http, for reasons that were measured on
// github.com/Telmate/proxmox-api-go: that library drops the reason phrase, in
// which releases before 8.4 put the only error text; it retries a refused token
// with sleeps; its newer waits for tasks never time out; and it panics on
// answers that are merely unusual. What castle needs is a dozen calls, and what
// protects somebody's virtual machines should not rest on recover.
//
// Two facts shape everything here. The list of guests is filtered by
// permission, so "not listed" never means "free": only cluster/nextid knows
// whether an id is taken. And the Terraform provider, when its create is told
// that the id exists, repeats it and takes that same answer for its own
// success: from then on a stranger's machine is in the state. The preflight is
// the only guard against that.
package proxmox

import (
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
)

// Options say how to reach a datacenter.
type Options struct {
	Endpoint string // https://host:8006; a path is ignored
	Token    string // user@realm!name=secret
	// CA is a PEM certificate, or the path of a file with one, that is trusted
	// besides the system's (SSL_CERT_FILE included).
	CA       string
	Insecure bool          // accept any certificate
	Timeout  time.Duration // of one request; 40 s if zero, a little more than a node waits for another
}

// Client asks one datacenter. Only a Removal changes anything there. It is safe
// for concurrent use.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// NewClient makes a client. It does not contact the datacenter.
func NewClient(o Options) (*Client, error) {
	endpoint, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.Insecure} //nolint:gosec // asked for by name
	if o.CA != "" {
		if config.RootCAs, err = trust(o.CA); err != nil {
			return nil, err
		}
	}
	if o.Timeout == 0 {
		o.Timeout = 40 * time.Second
	}
	return &Client{
		base:  endpoint.Scheme + "://" + endpoint.Host + "/api2/json/",
		token: o.Token,
		http: &http.Client{
			Timeout:       o.Timeout,
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf(`endpoint %q is no address such as "https://proxmox.example:8006"`, endpoint)
	}
	return u, nil
}

func trust(ca string) (*x509.CertPool, error) {
	pem := []byte(ca)
	if !strings.Contains(ca, "-----BEGIN") {
		var err error
		if pem, err = os.ReadFile(ca); err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("ca_file: system certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("ca_file: no PEM certificate in it")
	}
	return pool, nil
}

// get asks once; the path may have a query. The answer's data is decoded into
// out, unless that is nil.
func (c *Client) get(ctx context.Context, path string, out any) error {
	return c.call(ctx, http.MethodGet, path, out)
}

// call is one request, never repeated: what a lost answer means, only the caller
// knows. Parameters stand in the path's query.
func (c *Client) call(ctx context.Context, method, path string, out any) error {
	err := c.try(ctx, method, path, out)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		path, _, _ = strings.Cut(path, "?")
		return fmt.Errorf("proxmox: %s %s: %w", strings.ToLower(method), path, err)
	}
	return nil
}

func (c *Client) try(ctx context.Context, method, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "PVEAPIToken="+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error // repeats method and address, which get adds
		if errors.As(err, &wrapped) {
			return wrapped.Err
		}
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end below
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 32<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return newError(resp, answer)
	}
	envelope := struct {
		Data any `json:"data"`
	}{out}
	if err := json.Unmarshal(answer, &envelope); err != nil {
		return fmt.Errorf("unexpected answer: %w", err)
	}
	return nil
}
