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
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/process"
)

// attempt bounds one request.
const attempt = 15 * time.Second

// goodbye bounds what nobody waits for.
const goodbye = 3 * time.Second

type client struct {
	address string
	token   string
	own     bool // the token is of a login of castle's own
	http    *http.Client
}

func newClient(s Server, environ []string) (*client, error) {
	c := &client{address: strings.TrimSuffix(s.Address, "/"), http: &http.Client{Timeout: attempt, CheckRedirect: stay}}
	authority := s.CAFile
	if authority == "" {
		authority = process.Getenv(environ, "VAULT_CACERT")
	}
	if authority == "" {
		return c, nil
	}
	bundle := []byte(authority)
	if !strings.Contains(authority, "-----BEGIN") {
		var err error
		if bundle, err = os.ReadFile(authority); err != nil {
			return nil, s.trouble("the certificate of its authority cannot be read: "+err.Error(), "look at vault_ca_cert_file")
		}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, s.trouble("the certificate of its authority is no PEM", "look at vault_ca_cert_file")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	c.http.Transport = transport
	return c, nil
}

// leave revokes the token that a login gave, which nobody needs any more. It ends by
// itself sooner or later, so that one that cannot be revoked is no failure. An
// interrupted command leaves, too.
func (c *client) leave(ctx context.Context) {
	if !c.own {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer stop()
	_ = c.call(ctx, http.MethodPost, "auth/token/revoke-self", nil, nil) //nolint:errcheck // see above
}

// stay goes nowhere else: the token is for this Vault.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// failure is an answer that is no success. Its words are the server's.
type failure struct {
	status int
	sentTo string   // the host that it says to ask instead
	Errors []string `json:"errors"`
}

func (f *failure) Error() string {
	said := strings.Join(strings.Fields(strings.Join(f.Errors, "; ")), " ")
	if said == "" {
		said = http.StatusText(f.status)
	}
	return fmt.Sprintf("%s (%d)", said, f.status)
}

// call asks for a path below /v1.
func (c *client) call(ctx context.Context, method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.address+"/v1/"+path, sent)
	if err != nil {
		return err
	}
	r.Header.Set("X-Vault-Request", "true")
	r.Header.Set("User-Agent", "castle")
	if c.token != "" {
		r.Header.Set("X-Vault-Token", c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		if long := (*url.Error)(nil); errors.As(err, &long) {
			err = long.Err // the rest repeats the address
		}
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	received, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		f := &failure{status: response.StatusCode}
		if to, err := response.Location(); err == nil {
			f.sentTo = to.Scheme + "://" + to.Host
		}
		if json.Unmarshal(received, f) != nil {
			f.Errors = nil // a proxy's page, not the API's words
		}
		return f
	}
	if len(received) == 0 || answer == nil {
		return nil
	}
	if json.Unmarshal(received, answer) != nil {
		// The parser's words could quote a secret.
		return &failure{status: response.StatusCode, Errors: []string{"the answer is not Vault's"}}
	}
	return nil
}

func refusesCertificate(err error) bool {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid)
}
