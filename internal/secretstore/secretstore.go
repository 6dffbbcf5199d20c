// Package secretstore finds where a cluster's secrets are kept, from the stage that
// reads them there, and puts there what is missing. Infisical and Vault are the
// same to whoever uses it.
package secretstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/infisical"
	"github.com/ephemeral-castle/castle/internal/tfeval"
	"github.com/ephemeral-castle/castle/internal/vault"
)

// Keeper keeps secrets by name.
type Keeper interface {
	Read(ctx context.Context, environ []string) (map[string]string, error)
	// Add writes those that are missing or empty, and returns the names of those
	// that are there, which it leaves as they are.
	Add(ctx context.Context, environ []string, secrets map[string]string) (kept []string, err error)
}

// Collection is what a stage reads from a keeper.
type Collection struct {
	Keeper
	Stage string
	Where string // folder /blue of Infisical at https://eu.infisical.com
	Names []string
	// Optional are those of the names that the cluster does without.
	Optional map[string]bool
}

// Of finds the collection of a cluster.
func Of(stages []*config.Stage) (*Collection, error) {
	for _, s := range stages {
		inputs, _ := s.Inputs(config.Scope{}) //nolint:errcheck // what other stages say is nothing that a first stage needs
		reading := tfeval.Read(s, inputs)
		c := &Collection{Stage: s.Name, Optional: map[string]bool{}}
		switch {
		case len(reading.Known("data", "infisical_secrets")) > 0:
			c.infisical(reading)
		case len(reading.Known("data", "vault_kv_secret_v2")) > 0:
			if err := c.vault(s); err != nil {
				return nil, err
			}
		default:
			continue
		}
		c.Names = slices.Sorted(maps.Values(texts(reading.Local("names"))))
		if len(c.Names) == 0 {
			return nil, fmt.Errorf("stage %s does not say which secrets it reads: local.names is to be a map of their names", s.Name)
		}
		for name, v := range inputs {
			if strings.HasSuffix(name, "_optional_secrets") {
				for _, optional := range texts(v) {
					c.Optional[optional] = true
				}
			}
		}
		return c, nil
	}
	return nil, errors.New("no stage of this cluster reads its secrets from Infisical or a Vault")
}

func (c *Collection) infisical(r *tfeval.Module) {
	source := r.Known("data", "infisical_secrets")[0]
	f := infisical.Folder{Host: "https://app.infisical.com", Project: source.Text("workspace_id"), Environment: source.Text("env_slug"), Path: source.Text("folder_path")}
	for _, p := range r.Known("provider", "infisical") {
		if host := p.Text("host"); host != "" {
			f.Host = host
		}
	}
	c.Keeper, c.Where = f, fmt.Sprintf("folder %s, environment %s, of Infisical at %s", f.Path, f.Environment, f.Host)
}

// vault takes the place from the stage's preflight: a data source does not say
// how to log in.
func (c *Collection) vault(s *config.Stage) error {
	for _, p := range s.Preflights {
		if p.Type.Name != vault.Preflight {
			continue
		}
		values, diags := p.Values(s, config.Scope{})
		if diags.HasErrors() {
			return diags
		}
		place := vault.PlaceOf(values)
		c.Keeper, c.Where = place, fmt.Sprintf("%s below %s of the Vault at %s", place.Path, place.Mount, place.Server.Address)
		return nil
	}
	return fmt.Errorf("stage %s has no preflight %q: that says where its secrets are", s.Name, vault.Preflight)
}

// Missing are the names without a value, in their order.
func (c *Collection) Missing(there map[string]string) []string {
	return slices.DeleteFunc(slices.Clone(c.Names), func(name string) bool { return there[name] != "" })
}

// texts are the strings in a collection, by key or number.
func texts(v cty.Value) map[string]string {
	all := map[string]string{}
	if v == cty.NilVal || v.IsNull() || !v.IsWhollyKnown() || !v.CanIterateElements() {
		return all
	}
	for it := v.ElementIterator(); it.Next(); {
		key, element := it.Element()
		if element.Type() != cty.String || element.IsNull() {
			continue
		}
		name := element.AsString() // a set's elements are their own keys
		if key.Type() == cty.String {
			name = key.AsString()
		}
		all[name] = element.AsString()
	}
	return all
}
