// Package vault stands in for hashicorp/vault: the auth, policy, mount, KV and database types that
// the stages use, over the HTTP API of a real Vault.
//
// Like the real provider it creates a child of its token, unless the configuration sets
// skip_child_token. Vault rejects this for a token without a policy for it.
package vault

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

type provider struct{ client *client }

// New returns the provider.
func New() plugin.Provider {
	p := &provider{}
	text := plugin.Attribute{Type: cty.String, Optional: true}
	flag := plugin.Attribute{Type: cty.Bool, Optional: true}
	return plugin.Provider{
		Schema: plugin.Block{
			Attributes: map[string]plugin.Attribute{
				"address": text, "token": text, "token_name": text, "ca_cert_file": text, "namespace": text,
				"skip_child_token": flag, "skip_get_vault_version": flag,
				"max_lease_ttl_seconds": {Type: cty.Number, Optional: true},
			},
			Blocks: map[string]plugin.NestedBlock{"auth_login": {Mode: plugin.List,
				Block: plugin.Block{Attributes: map[string]plugin.Attribute{
					"path":       {Type: cty.String, Required: true},
					"method":     text,
					"parameters": {Type: cty.Map(cty.String), Optional: true, Sensitive: true},
				}}}},
		},
		Configure: p.configure,
		Resources: map[string]plugin.Resource{
			"vault_mount":            importing(p.mount(), "", "path", "", ""),
			"vault_policy":           importing(p.policy(), "", "name", "", ""),
			"vault_kv_secret_v2":     importing(p.secret(), "", "mount", "/data/", "name"),
			"vault_jwt_auth_backend": importing(p.jwt(), "", "path", "", ""),
			"vault_jwt_auth_backend_role": importing(p.jwtRole(), "auth/", "backend", "/role/",
				"role_name"),
			"vault_database_secret_backend_connection": importing(p.connection(), "", "backend",
				"/config/", "name"),
			"vault_database_secret_backend_role": importing(p.databaseRole(), "", "backend",
				"/roles/", "name"),
		},
		Data: map[string]plugin.DataSource{"vault_kv_secret_v2": p.secretData()},
	}
}

func (p *provider) configure(ctx context.Context, config plugin.Values) error {
	address := firstOf(config.String("address"), os.Getenv("VAULT_ADDR"))
	if address == "" {
		return &plugin.Problem{Summary: "failed to configure Vault address"}
	}
	c, err := newClient(address, firstOf(config.String("ca_cert_file"), os.Getenv("VAULT_CACERT")))
	if err != nil {
		return &plugin.Problem{Summary: "failed to configure TLS for Vault API: " + err.Error()}
	}
	if logins := config.Objects("auth_login"); len(logins) > 0 {
		err = c.login(ctx, logins[0])
	} else {
		c.token = firstOf(config.String("token"), os.Getenv("VAULT_TOKEN"), kept())
	}
	if err == nil && c.token == "" {
		err = fmt.Errorf("no vault token set on Client")
	}
	if err == nil && !config.Bool("skip_child_token") {
		err = c.child(ctx)
	}
	if err != nil {
		return &plugin.Problem{Summary: err.Error()}
	}
	p.client = c
	return nil
}

// login is a method whose parameters are all that it takes, such as AppRole.
func (c *client) login(ctx context.Context, v plugin.Values) error {
	return c.newToken(ctx, v.String("path"), v.Map("parameters"))
}

func (c *client) child(ctx context.Context) error {
	body := map[string]any{"display_name": "terraform", "ttl": "1200s", "explicit_max_ttl": "1200s",
		"renewable": false}
	if err := c.newToken(ctx, "auth/token/create", body); err != nil {
		return fmt.Errorf("failed to create limited child token: %w", err)
	}
	return nil
}

func (c *client) newToken(ctx context.Context, path string, body any) error {
	var answer struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		} `json:"auth"`
	}
	err := c.call(ctx, http.MethodPut, path, body, &answer)
	c.token = answer.Auth.ClientToken
	return err
}

// kept is the token that Vault's own command keeps.
func kept() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	token, err := os.ReadFile(filepath.Join(home, ".vault-token"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(token))
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}
