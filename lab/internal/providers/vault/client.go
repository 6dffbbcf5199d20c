package vault

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// client speaks Vault's HTTP API.
type client struct {
	address, token string
	http           *http.Client
}

// newClient trusts the authorities of a file; without one, the system's.
func newClient(address, caFile string) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if caFile != "" {
		bundle, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(bundle) {
			//nolint:staticcheck // the real client's words
			return nil, fmt.Errorf("Error loading CA File: Couldn't parse PEM in: %s", caFile)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &client{address: strings.TrimSuffix(address, "/"), http: &http.Client{Transport: transport}}, nil
}

// failure is an unsuccessful answer, in the real client's words.
type failure struct {
	method, url string
	status      int
	Errors      []string `json:"errors"`
}

func (f *failure) Error() string {
	text := fmt.Sprintf("Error making API request.\n\nURL: %s %s\nCode: %d. Errors:\n\n", f.method,
		f.url, f.status)
	for _, e := range f.Errors {
		text += "* " + e + "\n"
	}
	return strings.TrimSuffix(text, "\n")
}

// missing reports whether err means that a path does not exist.
func missing(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.status == http.StatusNotFound
}

// read reads the data at a path.
func (c *client) read(ctx context.Context, path string) (map[string]json.RawMessage, error) {
	var answer struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	err := c.call(ctx, http.MethodGet, path, nil, &answer)
	// For a deleted version of a secret, Vault returns 404 with data.
	if missing(err) && answer.Data != nil {
		err = nil
	}
	return answer.Data, err
}

func (c *client) write(ctx context.Context, path string, body any) error {
	return c.call(ctx, http.MethodPut, path, body, nil)
}

func (c *client) delete(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// call requests a path below /v1. It treats a response that is not JSON as foreign to Vault.
func (c *client) call(ctx context.Context, method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.address+"/v1/"+strings.Trim(path, "/"), sent)
	if err != nil {
		return err
	}
	r.Header.Set("X-Vault-Request", "true")
	r.Header.Set("User-Agent", "terraform-provider-vault")
	if c.token != "" {
		r.Header.Set("X-Vault-Token", c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if answer != nil && len(received) > 0 &&
		(response.StatusCode < 400 || response.StatusCode == http.StatusNotFound) {
		err = json.Unmarshal(received, answer)
	}
	if response.StatusCode < 400 {
		return err
	}
	f := &failure{method: method, url: r.URL.String(), status: response.StatusCode}
	if json.Unmarshal(received, f) != nil {
		f.Errors = nil // a proxy's page
	}
	return f
}
