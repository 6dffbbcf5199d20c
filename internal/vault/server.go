package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/process"
)

// Server is a Vault, and who asks it.
type Server struct {
	Address string // https://vault.example.org:8200
	CAFile  string // authorities to trust instead of the system's: PEM text or a file's path; VAULT_CACERT if empty
	// Role logs in with AppRole; without it VAULT_TOKEN is used.
	Role Role
}

// Role is an AppRole to log in with.
type Role struct{ Mount, ID, Secret string }

// Health is what a Vault that can be used says of itself.
type Health struct {
	// Standby says that another node is the active one, which this one asks.
	Standby bool
	Version string
	Time    time.Time // by its clock, in full seconds
}

// Token is what may be known of the token that castle asks with.
type Token struct {
	Left time.Duration // until it expires; 0: it does not
}

func (s Server) trouble(why string, ways ...string) *Trouble {
	return &Trouble{What: "Vault at " + s.Address, Why: why, Ways: ways}
}

// Health asks whether the Vault answers and can be used by anybody. What is wrong
// is a *Trouble.
func (s Server) Health(ctx context.Context, environ []string) (Health, error) {
	c, err := newClient(s, environ)
	if err != nil {
		return Health{}, err
	}
	return s.awake(ctx, c)
}

// health has every node answer with its body, which says what the status would.
const health = "sys/health?standbyok=true&perfstandbyok=true&sealedcode=200&uninitcode=200&drsecondarycode=200&removedcode=200&haunhealthycode=200"

func (s Server) awake(ctx context.Context, c *client) (Health, error) {
	var said struct {
		Initialized *bool  `json:"initialized"`
		Sealed      bool   `json:"sealed"`
		Standby     bool   `json:"standby"`
		Recovery    string `json:"replication_dr_mode"`
		Removed     bool   `json:"removed_from_cluster"`
		Version     string `json:"version"`
		Time        int64  `json:"server_time_utc"`
	}
	err := c.call(ctx, http.MethodGet, health, nil, &said)
	var trouble *Trouble
	switch {
	case err != nil && refusesCertificate(err):
		trouble = s.trouble("its certificate is from nobody who is trusted here: "+err.Error(),
			"set vault_ca_cert_file to the certificate of the authority that signed it")
	case err != nil && status(err) != 0:
		trouble = s.trouble("that is no Vault: "+err.Error(), "look at vault_address")
	case err != nil:
		trouble = s.trouble("it does not answer: "+err.Error(), "look at vault_address, at the network in between and at the Vault")
	case said.Initialized == nil:
		trouble = s.trouble("that is no Vault: it says nothing of its health", "look at vault_address")
	case !*said.Initialized:
		trouble = s.trouble("it is not initialised", "initialise it: vault operator init")
	case said.Removed:
		trouble = s.trouble("it was removed from its cluster", "name another node, or the load balancer, in vault_address")
	case said.Sealed:
		trouble = s.trouble("it is sealed", "unseal it: vault operator unseal")
	case said.Recovery == "secondary":
		trouble = s.trouble("it is a secondary for disaster recovery, which tells nobody anything", "name the primary in vault_address")
	}
	if trouble != nil {
		return Health{}, trouble
	}
	h := Health{Standby: said.Standby, Version: said.Version}
	if said.Time > 0 {
		h.Time = time.Unix(said.Time, 0)
	}
	return h, nil
}

// Token asks what castle would ask with: nobody who may do everything, and who
// has not expired. What is wrong is a *Trouble.
func (s Server) Token(ctx context.Context, environ []string) (Token, error) {
	c, t, err := s.logIn(ctx, environ)
	if err != nil {
		return t, err
	}
	c.leave(ctx)
	return t, nil
}

// logIn finds a Vault that can be used, and asks it as whoever castle is there. Who
// calls it has the client leave.
func (s Server) logIn(ctx context.Context, environ []string) (*client, Token, error) {
	c, err := newClient(s, environ)
	if err != nil {
		return nil, Token{}, err
	}
	if _, err := s.awake(ctx, c); err != nil {
		return nil, Token{}, err
	}
	if s.Role.ID != "" {
		err = s.appRole(ctx, c)
	} else if c.token = process.Getenv(environ, "VAULT_TOKEN"); c.token == "" {
		err = s.trouble("nobody says who asks: VAULT_TOKEN is not set",
			"set VAULT_TOKEN to a token with castle's policy, or vault_role_id and vault_role_secret_id to an AppRole's")
	}
	if err != nil {
		return nil, Token{}, err
	}
	t, err := s.scoped(ctx, c)
	if err != nil {
		c.leave(ctx)
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
	c.token, c.own = answer.Auth.ClientToken, err == nil
	if t := s.elsewhere(err); t != nil {
		return t
	}
	if err != nil {
		return s.trouble("AppRole is refused at auth/"+s.Role.Mount+": "+err.Error(), "look at vault_role_id, vault_role_secret_id and how long the latter is valid")
	}
	return nil
}

// scoped refuses a token that may do everything: what it reads would be worth
// less than itself.
func (s Server) scoped(ctx context.Context, c *client) (Token, error) {
	var token struct {
		Data struct {
			Policies         []string `json:"policies"`
			IdentityPolicies []string `json:"identity_policies"`
			TTL              int64    `json:"ttl"`
		} `json:"data"`
	}
	err := c.call(ctx, http.MethodGet, "auth/token/lookup-self", nil, &token)
	if t := s.elsewhere(err); t != nil {
		return Token{}, t
	}
	switch {
	case err != nil && strings.Contains(err.Error(), "invalid token"), err != nil && strings.Contains(err.Error(), "bad token"):
		err = s.trouble("it does not know the token: it has expired or was revoked", "make a new one, with castle's policy: "+makeToken)
	case status(err) == http.StatusForbidden:
		err = s.trouble("the token may not even look at itself", "give it the policy default, too, and castle's: "+makeToken)
	case err != nil:
		err = s.trouble("it does not say what the token may do: "+err.Error(), "look at the Vault")
	case slices.Contains(slices.Concat(token.Data.Policies, token.Data.IdentityPolicies), "root"):
		err = s.trouble("the token is root's: castle works with one that may do what it needs and no more", "make such a token: "+makeToken)
	}
	return Token{Left: time.Duration(token.Data.TTL) * time.Second}, err
}

const makeToken = "vault token create -orphan -policy=castle -period=24h (castle stage show secrets/vault vault-policy.hcl is the policy)"

// elsewhere is the trouble with a standby that cannot ask the active node itself
// and sends whoever asks there. The token is not taken to an address that nobody
// has named. Nil if err is anything else.
func (s Server) elsewhere(err error) *Trouble {
	f := (*failure)(nil)
	if !errors.As(err, &f) || f.sentTo == "" {
		return nil
	}
	return s.trouble(fmt.Sprintf("it is a standby and sends us to %s, where castle does not take the token", f.sentTo),
		"name the active node or the load balancer in vault_address", "let the standby forward what it is asked (its api_addr and cluster_addr)")
}

func status(err error) int {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.status
	}
	return 0
}
