// Package vault reads and writes a cluster's secrets in a Vault, and checks first that the Vault can be used.
// The token of a cluster may do a few things and no more, so castle sends only requests that such a token may
// make, and refuses root's. Vault answers "permission denied" for many reasons; a *Problem names the one that
// applies, with the ways to fix it.
package vault

import (
	"cmp"
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

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/httpjson"
	"github.com/ephemeral-castle/castle/internal/process"
)

// Server is a Vault and the credentials for it.
type Server struct {
	Address string // https://vault.example.org:8200
	CAFile  string // authorities instead of the system's: PEM text or a file's path; VAULT_CACERT if empty
	Role    Role   // logs in with AppRole; without it VAULT_TOKEN is used
}

// Role is an AppRole to log in with.
type Role struct{ Mount, ID, Secret string }

// Health is the state of a usable Vault.
type Health struct {
	Standby bool // another node is the active one; this one forwards requests to it
	Version string
	Time    time.Time // by its clock, in full seconds
}

// Problem is why a Vault cannot be used, with the ways to fix it.
type Problem struct {
	Object string // Vault at https://vault.example.org:8200
	Reason string
	Fixes  []string
}

func (p *Problem) Error() string {
	return fmt.Sprintf("%s: %s; %s", p.Object, p.Reason, strings.Join(p.Fixes, "; "))
}

func (s Server) problem(reason string, fixes ...string) *Problem {
	return &Problem{Object: "Vault at " + s.Address, Reason: reason, Fixes: fixes}
}

// failed is the problem of a failed request. A standby may redirect to the active node, but castle sends the
// token only to configured addresses.
func (s Server) failed(reason string, err error, fixes ...string) *Problem {
	if e, is := errors.AsType[*httpjson.Error](err); is && e.Redirect != "" {
		return s.problem(
			"it is a standby and redirects to "+e.Redirect+", where castle does not send the token",
			"name the active node or the load balancer in vault_address",
			"let the standby forward requests (its api_addr and cluster_addr)")
	}
	return s.problem(reason+": "+err.Error(), fixes...)
}

// Redirects reports a Vault that redirects the Terraform provider, which would follow with its token.
func Redirects(ctx context.Context, environ []string, address, authority string) []gate.Foreign {
	s := Server{Address: address, CAFile: authority}
	c, err := newClient(s, environ)
	if err != nil {
		return nil // Terraform reports it
	}
	ctx, stop := context.WithTimeout(ctx, attempt)
	defer stop()
	_, to := c.api.Redirected(ctx, "GET auth/token/lookup-self", "POST auth/token/create",
		"POST auth/approle/login")
	if to == "" {
		return nil
	}
	p := s.failed("", &httpjson.Error{Redirect: to})
	return []gate.Foreign{{What: p.Object, Why: p.Reason, Fixes: p.Fixes}}
}

const (
	checkAddress = "check vault_address"
	checkVault   = "check the Vault's log"
	makeToken    = "vault token create -orphan -policy=castle -period=24h " +
		"(castle stage show secrets/vault vault-policy.hcl is the policy)"
)

// Health returns the Vault's state if it is usable, and a *Problem if not.
func (s Server) Health(ctx context.Context, environ []string) (Health, error) {
	c, err := newClient(s, environ)
	if err != nil {
		return Health{}, err
	}
	return s.health(ctx, c)
}

// healthPath makes every node answer with a body, which holds the status.
const healthPath = "sys/health?standbyok=true&perfstandbyok=true&sealedcode=200&uninitcode=200" +
	"&drsecondarycode=200&removedcode=200&haunhealthycode=200"

func (s Server) health(ctx context.Context, c *client) (h Health, err error) {
	var answer struct {
		Initialized *bool  `json:"initialized"`
		Sealed      bool   `json:"sealed"`
		Standby     bool   `json:"standby"`
		Recovery    string `json:"replication_dr_mode"`
		Removed     bool   `json:"removed_from_cluster"`
		Version     string `json:"version"`
		Time        int64  `json:"server_time_utc"`
	}
	err = c.api.Do(ctx, http.MethodGet, healthPath, nil, &answer)
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return h, s.problem("no trusted authority has signed its certificate: "+err.Error(),
			"set vault_ca_cert_file to the certificate of the authority that signed it")
	case httpjson.Status(err) != 0:
		if e, is := errors.AsType[*httpjson.Error](err); is && e.Redirect != "" { // a standby answers itself
			return h, s.problem("it redirects to "+e.Redirect+", where castle does not send the token",
				checkAddress)
		}
		return h, s.problem("this is not a Vault: "+err.Error(), checkAddress)
	case err != nil:
		return h, s.problem("it does not answer: "+err.Error(),
			checkAddress+", the network in between and the Vault")
	case answer.Initialized == nil:
		return h, s.problem("this is not a Vault: its response has no health", checkAddress)
	case !*answer.Initialized:
		return h, s.problem("it is not initialised", "initialise it: vault operator init")
	case answer.Removed:
		return h, s.problem("it was removed from its cluster", "set vault_address to another node")
	case answer.Sealed:
		return h, s.problem("it is sealed", "unseal it: vault operator unseal")
	case answer.Recovery == "secondary":
		return h, s.problem("it is a secondary for disaster recovery", "name the primary in vault_address")
	}
	h = Health{Standby: answer.Standby, Version: answer.Version}
	if answer.Time > 0 {
		h.Time = time.Unix(answer.Time, 0)
	}
	return h, nil
}

// Lease is how long a token is still valid, and was when it was made; 0 if for ever.
type Lease struct{ Left, Life time.Duration }

// Token returns the lease of the token that castle would use. It is not root's and has not expired.
func (s Server) Token(ctx context.Context, environ []string) (Lease, error) {
	c, lease, err := s.logIn(ctx, environ)
	if err == nil {
		c.close(ctx)
	}
	return lease, err
}

// logIn returns a client of a usable Vault with a valid token. The caller closes it.
func (s Server) logIn(ctx context.Context, environ []string) (c *client, lease Lease, err error) {
	if c, err = newClient(s, environ); err != nil {
		return nil, lease, err
	}
	if _, err := s.health(ctx, c); err != nil {
		return nil, lease, err
	}
	if s.Role.ID != "" {
		err = s.appRole(ctx, c)
	} else if token := process.Getenv(environ, "VAULT_TOKEN"); token != "" {
		c.api.Header.Set("X-Vault-Token", token)
	} else {
		err = s.problem("VAULT_TOKEN is not set", "set VAULT_TOKEN to a token with castle's policy, "+
			"or vault_role_id and vault_role_secret_id to an AppRole's")
	}
	if err != nil {
		return nil, lease, err
	}
	if lease, err = s.lookUp(ctx, c); err != nil {
		c.close(ctx)
	}
	return c, lease, err
}

func (s Server) appRole(ctx context.Context, c *client) error {
	var answer struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		} `json:"auth"`
	}
	body := map[string]string{"role_id": s.Role.ID, "secret_id": s.Role.Secret}
	err := c.api.Do(ctx, http.MethodPost, "auth/"+s.Role.Mount+"/login", body, &answer)
	if err == nil && answer.Auth.ClientToken == "" {
		err = httpjson.NotExpected(http.StatusOK)
	}
	if err != nil {
		return s.failed("AppRole is refused at auth/"+s.Role.Mount, err,
			"check vault_role_id, vault_role_secret_id and how long the latter is valid")
	}
	c.api.Header.Set("X-Vault-Token", answer.Auth.ClientToken)
	c.own = true
	return nil
}

// lookUp refuses root's token: the secrets that it reads would be worth less than itself.
func (s Server) lookUp(ctx context.Context, c *client) (lease Lease, err error) {
	token, err := get[struct {
		Policies         []string `json:"policies"`
		IdentityPolicies []string `json:"identity_policies"`
		TTL              int64    `json:"ttl"`
		CreationTTL      int64    `json:"creation_ttl"`
	}](ctx, c, "auth/token/lookup-self")
	switch {
	case says(err, "invalid token", "bad token"):
		err = s.problem("it does not know the token: it has expired or was revoked",
			"make a new one, with castle's policy: "+makeToken)
	case httpjson.Status(err) == http.StatusForbidden:
		err = s.problem("the token may not look itself up",
			"give it the policy default, too, and castle's: "+makeToken)
	case err != nil:
		err = s.failed("it does not look up the token", err, checkVault)
	case slices.Contains(slices.Concat(token.Policies, token.IdentityPolicies), "root"):
		err = s.problem("the token is root's: castle uses one with only the rights that it needs",
			"make such a token: "+makeToken)
	}
	return Lease{time.Duration(token.TTL) * time.Second, time.Duration(token.CreationTTL) * time.Second}, err
}

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
		HTTP: http.Client{Timeout: attempt},
	}}
	authority := cmp.Or(s.CAFile, process.Getenv(environ, "VAULT_CACERT"))
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

// response is a response with data. One without is not Vault's.
type response[T any] struct{ data T }

// UnmarshalJSON refuses a response without data.
func (r *response[T]) UnmarshalJSON(text []byte) error {
	var envelope struct{ Data *T }
	if err := json.Unmarshal(text, &envelope); err != nil {
		return err
	}
	if envelope.Data == nil {
		return errors.New("no data")
	}
	r.data = *envelope.Data
	return nil
}

// get returns the data of a response.
func get[T any](ctx context.Context, c *client, path string) (T, error) {
	var answer response[T]
	err := c.api.Do(ctx, http.MethodGet, path, nil, &answer)
	return answer.data, err
}

// close revokes the token of a login, also after an interrupt. It expires by itself, so a failure is ignored.
func (c *client) close(ctx context.Context) {
	if !c.own {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer stop()
	_ = c.api.Do(ctx, http.MethodPost, "auth/token/revoke-self", nil, nil) //nolint:errcheck // see above
}

// may checks that the token has all wanted capabilities, by path, and lists those that it lacks.
func (s Server) may(ctx context.Context, c *client, wanted map[string][]string, fix string) error {
	paths := slices.Sorted(maps.Keys(wanted))
	var answer response[map[string][]string]
	body := map[string][]string{"paths": paths}
	err := httpjson.Repeat(ctx, func(ctx context.Context) error { // it changes nothing
		return c.api.Do(ctx, http.MethodPost, "sys/capabilities-self", body, &answer)
	})
	if err != nil {
		return s.failed("it does not list the token's capabilities", err,
			"give the token the policy default, too")
	}
	var lacks []string
	for _, path := range paths {
		missing := slices.DeleteFunc(slices.Clone(wanted[path]),
			func(want string) bool { return slices.Contains(answer.data[path], want) })
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

// says reports whether Vault's error has one of its texts that tell apart responses of one status.
func says(err error, texts ...string) bool {
	return httpjson.Status(err) != 0 &&
		slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}
