package vault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// The types of preflights: whether secrets can be read, and whether a stage can
// mount something and write what belongs to it.
const (
	Preflight      = "vault_secrets"
	PreflightMount = "vault_mount"
)

// PreflightTypes lists the preflights that ask a Vault.
func PreflightTypes() []gate.PreflightType { return []gate.PreflightType{secrets(), mounts()} }

// asking are the arguments that say which Vault, and who asks.
func asking(more map[string]gate.Attribute) map[string]gate.Attribute {
	all := map[string]gate.Attribute{
		"address":     {Type: cty.String, Required: true, Valid: validAddress, Help: "Vault's address, such as \"https://vault.example.org:8200\"."},
		"ca_file":     {Type: cty.String, Help: "A certificate to trust instead of the system's: PEM text or a file's path."},
		"role_mount":  {Type: cty.String, Help: "Where AppRole is mounted."},
		"role_id":     {Type: cty.String, Help: "An AppRole's id. Without it VAULT_TOKEN is used."},
		"role_secret": {Type: cty.String, Help: "The AppRole's secret id."},
	}
	maps.Copy(all, more)
	return all
}

func secrets() gate.PreflightType {
	return gate.PreflightType{
		Name:    Preflight,
		Summary: "A Vault is unsealed, and the token of the environment, which is not root's, may read a secret there",
		Attributes: asking(map[string]gate.Attribute{
			"mount": {Type: cty.String, Required: true, Help: "Where the KV engine is mounted."},
			"path":  {Type: cty.String, Required: true, Help: "The secret's path below the mount."},
		}),
		New: func(name string, target gate.Target, values gate.Values) (gate.Preflight, error) {
			p := PlaceOf(values)
			return gate.Preflight{
				Name: name,
				Inspect: func(ctx context.Context, _ []gate.Known, _ func(string)) (gate.Findings, error) {
					unfit, err := told(ctx, p.Usable(ctx, target.Environ))
					return gate.Findings{Unfit: unfit}, err
				},
			}, nil
		},
	}
}

// told makes a finding of a trouble; any other error stays one.
func told(ctx context.Context, err error) ([]gate.Foreign, error) {
	if t := (*Trouble)(nil); errors.As(err, &t) && ctx.Err() == nil {
		return []gate.Foreign{{What: t.What, Why: t.Why, Ways: t.Ways}}, nil
	}
	return nil, err
}

// PlaceOf is the place that a preflight's arguments name.
func PlaceOf(values gate.Values) Place {
	return Place{Server: ServerOf(values), Mount: values.String("mount"), Path: values.String("path")}
}

// ServerOf is the Vault that a preflight's arguments name, and who asks it.
func ServerOf(values gate.Values) Server {
	s := Server{Address: values.String("address"), CAFile: values.String("ca_file")}
	if id := values.String("role_id"); id != "" {
		s.Role = Role{Mount: values.String("role_mount"), ID: id, Secret: values.String("role_secret")}
	}
	return s
}

func validAddress(v cty.Value) error {
	u, err := url.Parse(v.AsString())
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is no address such as \"https://vault.example.org:8200\"", v.AsString())
	}
	return nil
}
