// Package vault reads and writes a cluster's secrets in a Vault, and checks first that the Vault can be
// used.
//
// The token of a cluster may do a few things and no more, so castle sends only requests that such a token
// may make, and refuses root's. Vault answers "permission denied" for many reasons; a *Problem names the
// one that applies, with the ways to fix it.
package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

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

// Token describes the token that castle uses.
type Token struct {
	Left time.Duration // until it expires; 0 if it does not
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

func (s Server) health(ctx context.Context, c *client) (Health, error) {
	var answer struct {
		Initialized *bool  `json:"initialized"`
		Sealed      bool   `json:"sealed"`
		Standby     bool   `json:"standby"`
		Recovery    string `json:"replication_dr_mode"`
		Removed     bool   `json:"removed_from_cluster"`
		Version     string `json:"version"`
		Time        int64  `json:"server_time_utc"`
	}
	err := c.call(ctx, http.MethodGet, healthPath, nil, &answer)
	var p *Problem
	switch {
	case refusesCertificate(err):
		p = s.problem("no trusted authority has signed its certificate: "+err.Error(),
			"set vault_ca_cert_file to the certificate of the authority that signed it")
	case httpjson.Status(err) != 0:
		p = s.problem("this is not a Vault: "+err.Error(), checkAddress)
	case err != nil:
		p = s.problem("it does not answer: "+err.Error(),
			checkAddress+", the network in between and the Vault")
	case answer.Initialized == nil:
		p = s.problem("this is not a Vault: its response has no health", checkAddress)
	case !*answer.Initialized:
		p = s.problem("it is not initialised", "initialise it: vault operator init")
	case answer.Removed:
		p = s.problem("it was removed from its cluster", "set vault_address to another node")
	case answer.Sealed:
		p = s.problem("it is sealed", "unseal it: vault operator unseal")
	case answer.Recovery == "secondary":
		p = s.problem("it is a secondary for disaster recovery", "name the primary in vault_address")
	}
	if p != nil {
		return Health{}, p
	}
	h := Health{Standby: answer.Standby, Version: answer.Version}
	if answer.Time > 0 {
		h.Time = time.Unix(answer.Time, 0)
	}
	return h, nil
}

// Token describes the token that castle would use, which is not root's and has not expired. Errors are of
// type *Problem.
func (s Server) Token(ctx context.Context, environ []string) (Token, error) {
	c, t, err := s.logIn(ctx, environ)
	if err != nil {
		return t, err
	}
	c.close(ctx)
	return t, nil
}

// logIn returns a client of a usable Vault with a valid token. The caller closes it.
func (s Server) logIn(ctx context.Context, environ []string) (*client, Token, error) {
	c, err := newClient(s, environ)
	if err != nil {
		return nil, Token{}, err
	}
	if _, err := s.health(ctx, c); err != nil {
		return nil, Token{}, err
	}
	if s.Role.ID != "" {
		err = s.appRole(ctx, c)
	} else if token := process.Getenv(environ, "VAULT_TOKEN"); token != "" {
		c.setToken(token)
	} else {
		err = s.problem("VAULT_TOKEN is not set", "set VAULT_TOKEN to a token with castle's policy, "+
			"or vault_role_id and vault_role_secret_id to an AppRole's")
	}
	if err != nil {
		return nil, Token{}, err
	}
	t, err := s.lookUp(ctx, c)
	if err != nil {
		c.close(ctx)
	}
	return c, t, err
}

func (s Server) appRole(ctx context.Context, c *client) error {
	var answer struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		} `json:"auth"`
	}
	body := map[string]string{"role_id": s.Role.ID, "secret_id": s.Role.Secret}
	err := c.call(ctx, http.MethodPost, "auth/"+s.Role.Mount+"/login", body, &answer)
	if p := s.redirected(err); p != nil {
		return p
	}
	if err != nil {
		return s.problem("AppRole is refused at auth/"+s.Role.Mount+": "+err.Error(),
			"check vault_role_id, vault_role_secret_id and how long the latter is valid")
	}
	c.setToken(answer.Auth.ClientToken)
	c.own = true
	return nil
}

// lookUp refuses root's token: the secrets that it reads would be worth less than itself.
func (s Server) lookUp(ctx context.Context, c *client) (Token, error) {
	var token struct {
		Data struct {
			Policies         []string `json:"policies"`
			IdentityPolicies []string `json:"identity_policies"`
			TTL              int64    `json:"ttl"`
		} `json:"data"`
	}
	err := c.call(ctx, http.MethodGet, "auth/token/lookup-self", nil, &token)
	if p := s.redirected(err); p != nil {
		return Token{}, p
	}
	switch {
	case says(err, invalidToken):
		err = s.problem("it does not know the token: it has expired or was revoked",
			"make a new one, with castle's policy: "+makeToken)
	case httpjson.Status(err) == http.StatusForbidden:
		err = s.problem("the token may not look itself up",
			"give it the policy default, too, and castle's: "+makeToken)
	case err != nil:
		err = s.problem("it does not look up the token: "+err.Error(), checkVault)
	case slices.Contains(slices.Concat(token.Data.Policies, token.Data.IdentityPolicies), "root"):
		err = s.problem("the token is root's: castle uses one with only the rights that it needs",
			"make such a token: "+makeToken)
	}
	return Token{Left: time.Duration(token.Data.TTL) * time.Second}, err
}

// redirected returns the problem with a standby that redirects to the active node: castle sends the token
// only to configured addresses. It is nil for any other err.
func (s Server) redirected(err error) *Problem {
	var e *httpjson.Error
	if !errors.As(err, &e) || e.Redirect == "" {
		return nil
	}
	return s.problem("it is a standby and redirects to "+e.Redirect+", where castle does not send the token",
		"name the active node or the load balancer in vault_address",
		"let the standby forward requests (its api_addr and cluster_addr)")
}
