package secretstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/secretstore/infisical"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

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
	for _, p := range providers() {
		all = append(all, p.source)
	}
	return all
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
