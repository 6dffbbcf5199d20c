package datacenter

import (
	"context"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/lab/internal/vault"
)

// Vault describes the Vault that the configuration expects.
type Vault struct {
	Program     string // lab-vault
	Mount, Path string // of the secret that holds the cluster's bootstrap secrets
	Policy      string // what castle's token may do
	// Role is the AppRole that castle logs in with, by its id and its mount; empty
	// where it does not.
	Role, RoleMount string
}

// RoleSecret is the variable with an AppRole's secret id, as the environment has it.
const RoleSecret = "TF_VAR_vault_role_secret_id"

// The secrets that only the operator of a Vault can put into it.
const (
	vaultCA     = "VAULT_CA_CERT"
	vaultReader = "VAULT_READER_TOKEN"
)

// TazLab's stages with Vault took 16, 18 and 18 s in June 2026 ("Eliminating Ansible"). In July the first two
// took 4 and 3 s ("Vault PKI Follow-Up"): most of June's time is what every stage began with, not Vault's.
// The lab gives it to the requests of Terraform's provider: to the one read of the first stage, and to the
// writes, of which each of the other two sends three one after the other. Nobody else waits.
const (
	vaultRead  = 12 * time.Second
	vaultWrite = 5500 * time.Millisecond
)

// landing is a Vault with the contents that a user puts there before the first create. It outlives
// the clusters of a rehearsal, as the real one does.
type landing struct {
	server *vault.Server
	token  string // castle's
	secret string // its AppRole's secret id

	secrets     string        // the API's path of the cluster's bootstrap secrets
	read, write time.Duration // how long it takes Terraform's provider to read them, and to write anything
}

// handler is the Vault, which takes its time for Terraform's provider.
func (l *landing) handler() http.Handler { return l.slow(l.server.Handler()) }

func (l *landing) slow(vault http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.UserAgent(), "terraform-provider-vault") {
			switch {
			case r.Method == http.MethodGet && r.URL.Path == l.secrets:
				elapse(r.Context(), l.read)
			case r.Method == http.MethodPut, r.Method == http.MethodPost:
				elapse(r.Context(), l.write)
			}
		}
		vault.ServeHTTP(w, r)
	})
}

// land starts the Vault. Unlike Infisical's emulator it is real, so it holds only the contents that
// the configuration names.
func (d *Datacenter) land(ctx context.Context) (*landing, error) {
	c := d.config.Vault
	s, err := vault.Start(ctx, vault.Options{
		Program: c.Program, Dir: filepath.Join(d.config.Dir, "vault"), Address: d.config.Front,
		Authority: d.config.Authority, Log: d.config.Log,
	})
	if err != nil {
		return nil, err
	}
	secrets := maps.Clone(d.folders.secrets)
	secrets[vaultCA] = string(d.config.Authority.Bundle())
	secrets[vaultReader], err = s.Token(ctx, "reader", `path "`+c.Mount+
		`/*" { capabilities = ["read", "list"] }`)
	if err != nil {
		return nil, err
	}
	if err := s.Fill(ctx, c.Mount, c.Path, secrets); err != nil {
		return nil, err
	}
	token, err := s.Token(ctx, "castle", c.Policy)
	if err != nil {
		return nil, err
	}
	l := &landing{server: s, token: token, secrets: "/v1/" + c.Mount + "/data/" + c.Path,
		read: scaled(vaultRead, d.config.Speed), write: scaled(vaultWrite, d.config.Speed)}
	if c.Role != "" {
		l.secret = random(20)
		err = s.AppRole(ctx, c.RoleMount, c.Role, l.secret, "castle")
	}
	return l, err
}

// credentials returns environment variables: a token with the permissions that castle needs, and
// the path of the operator's keys. The keys serve commands that break something on purpose.
func (l *landing) credentials() map[string]string {
	all := map[string]string{"VAULT_TOKEN": l.token, "CASTLE_LAB_VAULT_KEYS": l.server.KeysFile()}
	if l.secret != "" {
		all[RoleSecret] = l.secret
	}
	return all
}
