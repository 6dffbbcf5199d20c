// Package secretstore finds the store that a cluster reads its secrets from, by the stage
// that reads them, and adds missing secrets to it. Infisical and Vault look the same to
// its callers. A value that exists is never changed.
package secretstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/secretstore/infisical"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Store holds secrets by name.
type Store interface {
	Read(ctx context.Context, environ []string) (map[string]string, error)
	// Add writes secrets that are missing or empty, and returns the names of those that
	// exist, which it leaves unchanged.
	Add(ctx context.Context, environ []string, secrets map[string]string) (kept []string, err error)
}

// Collection is the set of secrets that a stage reads from a store.
type Collection struct {
	Store    Store
	Stage    string
	Where    string // folder /blue of Infisical at https://eu.infisical.com
	Names    []string
	Optional map[string]bool // names that the cluster does not require
}

// Of finds the collection of a cluster.
func Of(stages []*config.Stage) (*Collection, error) {
	for _, s := range stages {
		inputs, _ := s.Inputs(config.Scope{}) //nolint:errcheck // the stage depends on no outputs
		module := tfeval.Read(s, inputs)
		c := &Collection{Stage: s.Name, Optional: map[string]bool{}}
		if sources := module.Known("data", "infisical_secrets"); len(sources) > 0 {
			c.setInfisical(module, sources[0])
		} else if len(module.Known("data", "vault_kv_secret_v2")) == 0 {
			continue
		} else if err := c.setVault(s); err != nil {
			return nil, err
		}
		c.Names = slices.Sorted(slices.Values(tfeval.Strings(module.Local("names"))))
		if len(c.Names) == 0 {
			return nil, fmt.Errorf("stage %s: local.names must be a map of the names of its secrets", s.Name)
		}
		for _, optional := range tfeval.Strings(module.Local("optional")) {
			c.Optional[optional] = true
		}
		for name, v := range inputs {
			if strings.HasSuffix(name, "_optional_secrets") {
				for _, optional := range tfeval.Strings(v) {
					c.Optional[optional] = true
				}
			}
		}
		return c, nil
	}
	return nil, errors.New("no stage of this cluster reads its secrets from Infisical or a Vault")
}

func (c *Collection) setInfisical(module *tfeval.Module, source tfeval.Block) {
	f := infisical.Folder{
		Host: infisical.Cloud, Project: source.Text("workspace_id"),
		Environment: source.Text("env_slug"), Path: source.Text("folder_path"),
	}
	for _, p := range module.Known("provider", "infisical") {
		f.Host = cmp.Or(p.Text("host"), f.Host)
	}
	c.Store = f
	c.Where = fmt.Sprintf("folder %s, environment %s, of Infisical at %s", f.Path, f.Environment, f.Host)
}

// setVault reads the address and login from the stage's preflight: a data source has no login.
func (c *Collection) setVault(s *config.Stage) error {
	for _, p := range s.Preflights {
		if p.Type.Name != vault.Preflight {
			continue
		}
		values, diags := p.Values(s, config.Scope{})
		if diags.HasErrors() {
			return diags
		}
		place := vault.PlaceOf(values)
		c.Store = place
		c.Where = fmt.Sprintf("%s below %s of the Vault at %s", place.Path, place.Mount, place.Server.Address)
		return nil
	}
	return fmt.Errorf("stage %s has no preflight %q, which names its Vault", s.Name, vault.Preflight)
}

// Outputs returns the outputs of a stage that makes nothing, evaluated without Terraform, as far as they
// follow from its own inputs and from what its store holds; nil if that is unknown.
func Outputs(s *config.Stage, stored map[string]string) map[string]cty.Value {
	inputs, _ := s.Inputs(config.Scope{}) //nolint:errcheck // what needs another stage's output stays unknown
	module := tfeval.Read(s, inputs)
	if len(module.Instances("resource", "")) > 0 {
		return nil
	}
	if stored != nil {
		entries := map[string]cty.Value{}
		for name, value := range stored {
			entries[name] = cty.ObjectVal(map[string]cty.Value{"value": cty.StringVal(value)})
		}
		text, _ := json.Marshal(stored) // texts have a JSON
		data := map[string]map[string]cty.Value{}
		for _, source := range module.Known("data", "") {
			if data[source.Type] == nil {
				data[source.Type] = map[string]cty.Value{}
			}
			data[source.Type][source.Name] = cty.ObjectVal(map[string]cty.Value{
				"secrets": cty.ObjectVal(entries), "data_json": cty.StringVal(string(text)),
			})
		}
		module.SetData(data)
	}
	return module.Outputs()
}

// provider is a Terraform provider that follows a redirect with its credentials.
type provider struct {
	source                       string
	argument, variable, fallback string // for its address, in this order

	redirects func(_ context.Context, environ []string, address, authority string) []gate.Foreign
}

func providers() []provider {
	return []provider{
		{"registry.terraform.io/infisical/infisical", "host", "INFISICAL_HOST", infisical.Cloud,
			infisical.Redirects},
		{"registry.terraform.io/hashicorp/vault", "address", "VAULT_ADDR", "", vault.Redirects},
	}
}

// ProviderSources returns the source addresses of the stores' Terraform providers.
func ProviderSources() (all []string) {
	return xslices.Map(providers(), func(p provider) string { return p.source })
}

// Redirects returns the first provider of a module that its store redirects elsewhere, and where to; names
// are those that the module gives to the providers, by source. castle's own requests follow no redirect, but
// the provider would send its credentials wherever it leads. So castle sends the store the provider's
// requests without credentials.
func Redirects(ctx context.Context, module *tfeval.Module, names map[string]string, environ []string) (
	name string, found []gate.Foreign, err error) {
	for _, p := range providers() {
		if name = names[p.source]; name == "" {
			continue
		}
		unset := cmp.Or(process.Getenv(environ, p.variable), p.fallback)
		addresses := map[string]string{} // to the file of its authority
		for _, block := range module.Instances("provider", name) {
			v, err := block.Value(p.argument)
			if err != nil || v != cty.NilVal && !v.IsKnown() {
				return name, nil, fmt.Errorf("%s: castle checks the %s before Terraform connects to it, but "+
					"it is known only during the run: make it a variable", block.Range(), p.argument)
			}
			addresses[cmp.Or(tfeval.Text(v), unset)] = block.Text("ca_cert_file")
		}
		if len(addresses) == 0 {
			addresses[unset] = ""
		}
		for _, address := range slices.Sorted(maps.Keys(addresses)) {
			if found = p.redirects(ctx, environ, address, addresses[address]); len(found) > 0 {
				return name, found, nil
			}
		}
	}
	return "", nil, nil
}
