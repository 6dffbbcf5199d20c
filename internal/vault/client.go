package vault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/httpjson"
	"github.com/ephemeral-castle/castle/internal/process"
)

// attempt bounds one request, and goodbye the revocation of a login's token.
const (
	attempt = 15 * time.Second
	goodbye = 3 * time.Second
)

type client struct {
	api httpjson.Client
	own bool // the token is of a login of castle's own
}

func newClient(s Server, environ []string) (*client, error) {
	c := &client{api: httpjson.Client{
		Base: strings.TrimSuffix(s.Address, "/") + "/v1/", Header: http.Header{"X-Vault-Request": {"true"}},
		// No redirect is followed: the token is for this Vault.
		HTTP: http.Client{Timeout: attempt, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}}
	authority := s.CAFile
	if authority == "" {
		authority = process.Getenv(environ, "VAULT_CACERT")
	}
	if authority == "" {
		return c, nil
	}
	roots := x509.NewCertPool()
	if err := httpjson.AddRoots(roots, authority); err != nil {
		return nil, s.problem("the certificate of its authority cannot be read: "+err.Error(),
			"check vault_ca_cert_file")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	c.api.HTTP.Transport = transport
	return c, nil
}

func (c *client) setToken(token string) { c.api.Header.Set("X-Vault-Token", token) }

// call sends one request for a path below /v1.
func (c *client) call(ctx context.Context, method, path string, body, answer any) error {
	return c.api.Do(ctx, method, path, body, answer)
}

// close revokes the token of a login, also after an interrupt. It expires by itself, so a failure is ignored.
func (c *client) close(ctx context.Context) {
	if !c.own {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer stop()
	_ = c.call(ctx, http.MethodPost, "auth/token/revoke-self", nil, nil) //nolint:errcheck // see above
}

// may checks that the token has all wanted capabilities, by path, and lists those that it lacks.
func (s Server) may(ctx context.Context, c *client, wanted map[string][]string, fix string) error {
	paths := slices.Sorted(maps.Keys(wanted))
	var answer struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	err := c.call(ctx, http.MethodPost, "sys/capabilities-self", map[string][]string{"paths": paths}, &answer)
	if err != nil {
		return s.problem("it does not list the token's capabilities: "+err.Error(),
			"give the token the policy default, too")
	}
	var lacks []string
	for _, path := range paths {
		var has []string
		if err := json.Unmarshal(answer.Data[path], &has); err != nil {
			return s.problem("it does not list the token's capabilities", checkVault)
		}
		missing := slices.DeleteFunc(slices.Clone(wanted[path]),
			func(want string) bool { return slices.Contains(has, want) })
		if len(missing) > 0 {
			lacks = append(lacks, strings.Join(missing, ", ")+" "+path)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return s.problem(fmt.Sprintf("the token may not %s: no policy of its own allows it",
		strings.Join(lacks, "; ")), fix)
}

// Texts of Vault's that tell apart responses of one status.
var (
	invalidToken = []string{"invalid token", "bad token"}
	revokeFailed = []string{"failed to revoke"} // Vault has tried, and the database has not deleted its users
)

func says(err error, texts []string) bool {
	return httpjson.Status(err) != 0 &&
		slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}

func refusesCertificate(err error) bool {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid)
}
