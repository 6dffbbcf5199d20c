package vault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// The preflight types check whether secrets can be read, and whether a stage can create a mount and write
// its content.
const (
	Preflight      = "vault_secrets"
	PreflightMount = "vault_mount"
)

// PreflightTypes lists the preflights that ask a Vault.
func PreflightTypes() []gate.PreflightType { return []gate.PreflightType{secrets(), mounts()} }

// attributes adds to more those that name the Vault and its credentials.
func attributes(more map[string]gate.Attribute) map[string]gate.Attribute {
	maps.Copy(more, map[string]gate.Attribute{
		"address": required(`Vault's address, such as "https://vault.example.org:8200".`, validAddress),
		"ca_file": {Type: cty.String,
			Help: "A certificate to trust instead of the system's: PEM text or a file's path."},
		"role_mount":  {Type: cty.String, Help: "Where AppRole is mounted."},
		"role_id":     {Type: cty.String, Help: "An AppRole's id. Without it VAULT_TOKEN is used."},
		"role_secret": {Type: cty.String, Help: "The AppRole's secret id."},
	})
	return more
}

func required(help string, valid func(cty.Value) error) gate.Attribute {
	return gate.Attribute{Type: cty.String, Required: true, Valid: valid, Help: help}
}

func secrets() gate.PreflightType {
	return gate.PreflightType{
		Name:    Preflight,
		Summary: "A Vault is unsealed, and the environment's token, not root's, may read a secret there",
		Attributes: attributes(map[string]gate.Attribute{
			"mount": required("Where the KV engine is mounted.", nil),
			"path":  required("The secret's path below the mount.", nil),
		}),
		New: func(name string, target gate.Target, values gate.Values) (gate.Preflight, error) {
			p := PlaceOf(values)
			inspect := func(ctx context.Context, _ []gate.Known, _ func(string)) (gate.Inspection, error) {
				unfit, err := unfit(ctx, p.Usable(ctx, target.Environ))
				return gate.Inspection{Unusable: unfit}, err
			}
			return gate.Preflight{Name: name, Inspect: inspect}, nil
		},
	}
}

func mounts() gate.PreflightType {
	return gate.PreflightType{
		Name: PreflightMount,
		Summary: "A path in a Vault is free or the stage's own, and the token may write what the " +
			"stage writes",
		Attributes: attributes(map[string]gate.Attribute{
			"kind":     required(`What is mounted: an "auth" method or a "secrets" engine.`, validKind),
			"path":     required(`Where, such as "jwt-blue".`, nil),
			"resource": required(`The resource that is the mount, such as "vault_mount.database".`, nil),
			"setting":  required("The variable that names another path.", nil),
			"writes": {Type: cty.List(cty.String),
				Help: "What else the stage creates, reads, updates and deletes, " +
					`as Vault's API calls it: "sys/policies/acl/castle-blue".`},
			"leases": {Type: cty.Bool,
				Help: "Whether the engine creates leases, such as a database's users: " +
					"a destroy revokes them first."},
			"kv_mount": {Type: cty.String,
				Help: "The KV engine, version 2, in which the stage writes a secret."},
			"kv_path": {Type: cty.String, Help: "That secret's path below the mount."},
			"policy":  required("Where the policy is that the token needs.", nil),
		}),
		New: func(name string, target gate.Target, v gate.Values) (gate.Preflight, error) {
			m := mount{
				server: ServerOf(v), environ: target.Environ, kind: mountKinds[v.String("kind")],
				path: strings.Trim(v.String("path"),
					"/"), resource: v.String("resource"), setting: v.String("setting"),
				policy: v.String("policy"), leases: v.Bool("leases"),
			}
			m.kv = Place{Server: m.server, Mount: v.String("kv_mount"), Path: v.String("kv_path")}
			if err := v.Decode("writes", &m.writes); err != nil {
				return gate.Preflight{}, fmt.Errorf("%s: %w", name, err)
			}
			p := gate.Preflight{Name: name, Inspect: m.inspect}
			if m.leases {
				p.Revoke = m.revoke
			}
			return p, nil
		},
	}
}

// unfit makes a finding of a problem; any other error stays one.
func unfit(ctx context.Context, err error) ([]gate.Foreign, error) {
	if p := (*Problem)(nil); errors.As(err, &p) && ctx.Err() == nil {
		return []gate.Foreign{{What: p.Object, Why: p.Reason, Fixes: p.Fixes}}, nil
	}
	return nil, err
}

// PlaceOf is the place that a preflight's arguments name.
func PlaceOf(values gate.Values) Place {
	return Place{Server: ServerOf(values), Mount: values.String("mount"), Path: values.String("path")}
}

// ServerOf is the Vault that a preflight's arguments name, with its credentials.
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
		return fmt.Errorf("%q is not an address such as \"https://vault.example.org:8200\"", v.AsString())
	}
	return nil
}

func validKind(v cty.Value) error {
	if _, ok := mountKinds[v.AsString()]; !ok {
		return fmt.Errorf("%q is neither \"auth\" nor \"secrets\"", v.AsString())
	}
	return nil
}
