package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/secretstore/infisical"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// storeProvider is a provider that follows a redirect with its credentials.
type storeProvider struct {
	source                       string
	argument, variable, fallback string // for its address, in this order
	redirects                    func(_ context.Context, address, authority string) []gate.Foreign
}

func (w *Workspace) storeProviders() []storeProvider {
	return []storeProvider{
		{"registry.terraform.io/infisical/infisical", "host", "INFISICAL_HOST", infisical.Cloud,
			func(ctx context.Context, address, _ string) []gate.Foreign {
				return infisical.Redirects(ctx, address)
			}},
		{"registry.terraform.io/hashicorp/vault", "address", "VAULT_ADDR", "",
			func(ctx context.Context, address, authority string) []gate.Foreign {
				s := vault.Server{Address: address, CAFile: authority}
				return s.Redirects(ctx, w.Run.Cluster.Options.Environ)
			}},
	}
}

// refuseRedirects returns a *PreflightError if a secret store redirects the module's provider elsewhere.
// castle's own requests follow no redirect, but the provider would send its credentials wherever it leads. So
// castle sends the store the provider's requests without credentials, before each command that connects
// providers: an import comes before the preflights, and a plan also follows one that refuses.
func (w *Workspace) refuseRedirects(ctx context.Context) error {
	all := w.storeProviders()
	names := terraform.ProviderNames(w.Root.Dir, all[0].source, all[1].source)
	for _, p := range all {
		name := names[p.source]
		if name == "" {
			continue
		}
		module, err := w.module()
		if err != nil {
			return err
		}
		unset := cmp.Or(process.Getenv(w.Run.Cluster.Options.Environ, p.variable), p.fallback)
		addresses := map[string]string{} // to the file of its authority
		for _, block := range module.Instances("provider", name) {
			v, err := block.Value(p.argument)
			if err != nil || v != cty.NilVal && !v.IsKnown() {
				return fmt.Errorf("%s: castle checks the %s before Terraform connects to it, but it is "+
					"known only during the run: make it a variable", block.Range(), p.argument)
			}
			addresses[cmp.Or(tfeval.Text(v), unset)] = block.Text("ca_cert_file")
		}
		if len(addresses) == 0 {
			addresses[unset] = ""
		}
		for _, address := range slices.Sorted(maps.Keys(addresses)) {
			if found := p.redirects(ctx, address, addresses[address]); len(found) > 0 {
				return &PreflightError{Preflight: "of provider " + name, Foreign: found}
			}
		}
	}
	return nil
}

// module reads the module in the work directory with its inputs.
func (w *Workspace) module() (*tfeval.Module, error) {
	var inputs map[string]ctyjson.SimpleJSONValue
	data, err := w.Root.Inputs()
	if err == nil {
		err = json.Unmarshal(data, &inputs)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the inputs of stage %s: %w", w.stage, err)
	}
	variables := map[string]cty.Value{}
	for name, v := range inputs {
		variables[name] = v.Value
	}
	return tfeval.ReadFolder(ownfile.FS(w.Root.Dir), variables), nil
}
