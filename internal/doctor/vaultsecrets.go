package doctor

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/tfeval"
	"github.com/ephemeral-castle/castle/internal/vault"
)

// consultVault asks a Vault what the data source of a stage would. Where it stands
// and how to log in, the stage's preflight says.
func (x *examination) consultVault(ctx context.Context, s *config.Stage, r *tfeval.Module) spoken {
	result := spoken{keeper: "vault"}
	sources := r.Known("data", "vault_kv_secret_v2")
	for _, p := range s.Preflights {
		if p.Type.Name != vault.Preflight || len(sources) == 0 {
			continue
		}
		values, diags := p.Values(s, config.Scope{Outputs: x.Outputs})
		if diags.HasErrors() {
			result.unread, result.findings = "where its Vault is, is not known", red("", "%v", diags)
			return result
		}
		place := vault.PlaceOf(values)
		if _, err := place.Server.Token(ctx, x.Environ); err != nil {
			result.unread, result.findings = "Vault's secrets could not be read", unasked()
			return result
		}
		secrets, err := place.Read(ctx, x.Environ)
		if err == nil && len(secrets) == 0 {
			err = place.Usable(ctx, x.Environ) // it says so
		}
		if err != nil {
			result.unread, result.findings = "Vault's secrets could not be read", troubled(ctx, err)
			return result
		}
		for _, value := range secrets {
			x.Masker.Add(value)
		}
		text, err := json.Marshal(secrets)
		if err != nil {
			result.findings = red("", "%v", err)
			return result
		}
		self := cty.ObjectVal(map[string]cty.Value{"data_json": cty.StringVal(string(text))})
		unmet := r.FailedPostconditions(sources[0], self)
		for _, why := range unmet {
			result.findings = append(result.findings, red(fmt.Sprintf("castle secrets seed %s/%s", x.Name, x.Platform), "%s", why)...)
		}
		if len(unmet) == 0 {
			result.findings = green("%s below %s at %s: %d secrets, all that %s asks for there and none of them empty", place.Path, place.Mount, place.Server.Address, len(secrets), s.Name)
		}
		r.SetData(map[string]map[string]cty.Value{"vault_kv_secret_v2": {sources[0].Name: self}})
	}
	return result
}
