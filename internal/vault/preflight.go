package vault

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Preflight is the type of preflight that asks whether secrets can be read.
const Preflight = "vault_secrets"

// PreflightTypes lists the preflights that ask a Vault.
func PreflightTypes() []gate.PreflightType {
	return []gate.PreflightType{{
		Name:    Preflight,
		Summary: "A Vault is unsealed, and the token of the environment, which is not root's, may read a secret there",
		Attributes: map[string]gate.Attribute{
			"address":     {Type: cty.String, Required: true, Valid: validAddress, Help: "Vault's address, such as \"https://vault.example.org:8200\"."},
			"ca_file":     {Type: cty.String, Help: "A certificate to trust instead of the system's: PEM text or a file's path."},
			"mount":       {Type: cty.String, Required: true, Help: "Where the KV engine is mounted."},
			"path":        {Type: cty.String, Required: true, Help: "The secret's path below the mount."},
			"role_mount":  {Type: cty.String, Help: "Where AppRole is mounted."},
			"role_id":     {Type: cty.String, Help: "An AppRole's id. Without it VAULT_TOKEN is used."},
			"role_secret": {Type: cty.String, Help: "The AppRole's secret id."},
		},
		New: func(name string, target gate.Target, values gate.Values) (gate.Preflight, error) {
			p := PlaceOf(values)
			return gate.Preflight{
				Name: name,
				Inspect: func(ctx context.Context, _ []gate.Known, _ func(string)) (gate.Findings, error) {
					err := p.Usable(ctx, target.Environ)
					if t := (*Trouble)(nil); errors.As(err, &t) && ctx.Err() == nil {
						return gate.Findings{Unfit: []gate.Foreign{{What: t.What, Why: t.Why, Ways: t.Ways}}}, nil
					}
					return gate.Findings{}, err
				},
			}, nil
		},
	}}
}

// PlaceOf is the place that a preflight's arguments name.
func PlaceOf(values gate.Values) Place {
	return Place{
		Address: values.String("address"), CAFile: values.String("ca_file"), Mount: values.String("mount"), Path: values.String("path"),
		Role: Role{Mount: values.String("role_mount"), ID: values.String("role_id"), Secret: values.String("role_secret")},
	}
}

func validAddress(v cty.Value) error {
	u, err := url.Parse(v.AsString())
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is no address such as \"https://vault.example.org:8200\"", v.AsString())
	}
	return nil
}
