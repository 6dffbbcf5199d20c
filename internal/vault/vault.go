// Package vault asks a Vault for a cluster's secrets, and first of all whether
// it can be asked.
//
// How it thinks: whoever asks has a token that may do a few things and no more,
// so each question is one that such a token may ask. What is wrong is said as a
// Trouble: what, why and the ways out, one for each reason, since "permission
// denied" is Vault's word for half of them.
package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Place is where a cluster's secrets are: one secret of a KV engine, version 2,
// with a value for each name.
type Place struct {
	Address string // https://vault.example.org:8200
	CAFile  string // authorities to trust besides the system's: PEM text or a file's path; VAULT_CACERT if empty
	Mount   string // the engine's
	Path    string // the secret's, below the mount
	// Role logs in with AppRole; without it VAULT_TOKEN is used.
	Role Role
}

// Role is an AppRole to log in with.
type Role struct{ Mount, ID, Secret string }

// Trouble is why a Vault cannot be used, and the ways out.
type Trouble struct {
	What string
	Why  string
	Ways []string
}

func (t *Trouble) Error() string {
	return fmt.Sprintf("%s: %s; %s", t.What, t.Why, strings.Join(t.Ways, "; "))
}

// Usable is nil if the place's secrets can be read with what the environment
// holds, and by nobody who may do everything. What is wrong is a *Trouble.
func (p Place) Usable(ctx context.Context, environ []string) error {
	c, err := p.open(ctx, environ)
	if err != nil {
		return err
	}
	v, err := p.read(ctx, c)
	if err == nil && len(v.Data) == 0 {
		err = p.trouble(fmt.Sprintf("there is nothing at %s below %s yet", p.Path, p.Mount), "write the cluster's secrets: castle secrets seed CLUSTER",
			"or look at vault_kv_path")
	}
	return err
}

// open finds a Vault that answers, and logs in.
func (p Place) open(ctx context.Context, environ []string) (*client, error) {
	c, err := newClient(p, environ)
	if err != nil {
		return nil, err
	}
	if err := p.awake(ctx, c); err != nil {
		return nil, err
	}
	if p.Role.ID != "" {
		err = p.logIn(ctx, c)
	} else if c.token = look(environ, "VAULT_TOKEN"); c.token == "" {
		err = p.trouble("nobody says who asks: VAULT_TOKEN is not set",
			"set VAULT_TOKEN to a token with castle's policy, or vault_role_id and vault_secret_id to an AppRole's")
	}
	if err != nil {
		return nil, err
	}
	if err := p.scoped(ctx, c); err != nil {
		return nil, err
	}
	return c, p.versioned(ctx, c)
}

func (p Place) trouble(why string, ways ...string) *Trouble {
	return &Trouble{What: "Vault at " + p.Address, Why: why, Ways: ways}
}

// awake asks for the health, which says by its status what the body says, too.
func (p Place) awake(ctx context.Context, c *client) error {
	var health struct {
		Initialized *bool `json:"initialized"`
		Sealed      bool  `json:"sealed"`
	}
	err := c.call(ctx, http.MethodGet, "sys/health?standbyok=true&sealedcode=200&uninitcode=200", nil, &health)
	switch {
	case err != nil && refusesCertificate(err):
		return p.trouble("its certificate is from nobody who is trusted here: "+err.Error(),
			"set vault_ca_cert_file to the certificate of the authority that signed it")
	case err != nil && status(err) != 0:
		return p.trouble("that is no Vault: "+err.Error(), "look at vault_address")
	case err != nil:
		return p.trouble("it does not answer: "+err.Error(), "look at vault_address, at the network in between and at the Vault")
	case health.Initialized == nil:
		return p.trouble("that is no Vault: it says nothing of its health", "look at vault_address")
	case !*health.Initialized:
		return p.trouble("it is not initialised", "initialise it: vault operator init")
	case health.Sealed:
		return p.trouble("it is sealed", "unseal it: vault operator unseal")
	}
	return nil
}

func (p Place) logIn(ctx context.Context, c *client) error {
	var answer struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		} `json:"auth"`
	}
	body := map[string]string{"role_id": p.Role.ID, "secret_id": p.Role.Secret}
	err := c.call(ctx, http.MethodPost, "auth/"+p.Role.Mount+"/login", body, &answer)
	if c.token = answer.Auth.ClientToken; err != nil {
		return p.trouble("AppRole is refused at auth/"+p.Role.Mount+": "+err.Error(), "look at vault_role_id, vault_secret_id and how long the latter is valid")
	}
	return nil
}

// scoped refuses a token that may do everything: what it reads would be worth
// less than itself.
func (p Place) scoped(ctx context.Context, c *client) error {
	var token struct {
		Data struct {
			Policies         []string `json:"policies"`
			IdentityPolicies []string `json:"identity_policies"`
		} `json:"data"`
	}
	err := c.call(ctx, http.MethodGet, "auth/token/lookup-self", nil, &token)
	switch {
	case err != nil && strings.Contains(err.Error(), "invalid token"), err != nil && strings.Contains(err.Error(), "bad token"):
		return p.trouble("it does not know the token: it has expired or was revoked", "make a new one, with castle's policy: "+makeToken)
	case status(err) == http.StatusForbidden:
		return p.trouble("the token may not even look at itself", "give it the policy default, too, and castle's: "+makeToken)
	case err != nil:
		return p.trouble("it does not say what the token may do: "+err.Error(), "look at the Vault")
	case slices.Contains(slices.Concat(token.Data.Policies, token.Data.IdentityPolicies), "root"):
		return p.trouble("the token is root's: castle works with one that may do what it needs and no more", "make such a token: "+makeToken)
	}
	return nil
}

const makeToken = "vault token create -orphan -policy=castle -period=24h (docs/vault.md has the policy)"

// versioned holds the engine to its second version: the first one has no versions
// to hold a write against, and other paths.
func (p Place) versioned(ctx context.Context, c *client) error {
	var mount struct {
		Data struct {
			Type    string            `json:"type"`
			Options map[string]string `json:"options"`
		} `json:"data"`
	}
	err := c.call(ctx, http.MethodGet, "sys/internal/ui/mounts/"+p.Mount, nil, &mount)
	switch m := mount.Data; {
	case status(err) == http.StatusForbidden:
		return p.trouble(fmt.Sprintf("nothing is mounted at %s, or the token has no policy for anything below it", p.Mount),
			"look at vault_kv_mount", "give the token castle's policy, written for this mount: "+makeToken)
	case err != nil:
		return p.trouble(fmt.Sprintf("it does not say what is mounted at %s: %v", p.Mount, err), "look at vault_kv_mount")
	case m.Type != "kv":
		return p.trouble(fmt.Sprintf("%s is no KV engine, but %s", p.Mount, m.Type), "look at vault_kv_mount")
	case m.Options["version"] != "2":
		return p.trouble(fmt.Sprintf("the KV engine at %s is of version 1", p.Mount),
			"make it one of version 2: vault kv enable-versioning "+p.Mount, "or name another one in vault_kv_mount")
	}
	return nil
}

// may asks whether the token may do all of that with the secret.
func (p Place) may(ctx context.Context, c *client, wanted ...string) error {
	path := p.Mount + "/data/" + p.Path
	var answer struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if err := c.call(ctx, http.MethodPost, "sys/capabilities-self", map[string][]string{"paths": {path}}, &answer); err != nil {
		return p.trouble("it does not say what the token may do: "+err.Error(), "give the token the policy default, too")
	}
	var may []string
	if err := json.Unmarshal(answer.Data[path], &may); err != nil {
		return p.trouble("it does not say what the token may do", "look at the Vault")
	}
	for _, want := range wanted {
		if !slices.Contains(may, want) {
			return p.trouble(fmt.Sprintf("the token may not %s %s: no policy of its own says so", want, path),
				"give it castle's policy: "+makeToken)
		}
	}
	return nil
}

// look finds a variable of an environment.
func look(environ []string, name string) string {
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

func status(err error) int {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.status
	}
	return 0
}
