package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/infisical"
	"github.com/ephemeral-castle/castle/internal/tfeval"
	"github.com/ephemeral-castle/castle/internal/vault"
)

// secretsLayer is the layer whose outputs other checks need.
const secretsLayer = "secrets"

// secrets is the result of reading the secret store.
type secrets struct {
	findings []Finding
	store    string   // infisical or vault: the name of the findings
	hosts    []string // of Infisical
	unread   string   // why not all outputs of the layer are known; empty if they are
}

// readSecrets evaluates the outputs of the secrets layer. A stage without resources
// depends only on its variables and data sources, so neither Terraform nor a state is
// needed. An output that cannot be evaluated keeps its value in the state.
func (r *checkRun) readSecrets(ctx context.Context) {
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer stop()
	var mu sync.Mutex
	var all sync.WaitGroup
	results := make([]secrets, len(r.target.Stages))
	outputs := map[string]cty.Value{}
	for i, s := range r.target.Stages {
		if s.Layer != secretsLayer {
			continue
		}
		module := tfeval.Read(s, r.inputs(s))
		if module.Has("resource") {
			continue // its outputs are known after apply
		}
		all.Go(func() {
			if sources := module.Known("data", "infisical_secrets"); len(sources) > 0 {
				results[i] = r.readInfisical(ctx, s, module, sources)
			} else {
				results[i] = r.readVault(ctx, s, module)
			}
			own := module.Outputs()
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(outputs, own)
			for name, v := range own {
				if s.Outputs[name].Sensitive {
					walkStrings(v, func(text string) { r.target.Masker.Add(text) })
				}
			}
		})
	}
	all.Wait()
	layers, layer := map[string]map[string]cty.Value{}, map[string]cty.Value{}
	maps.Copy(layers, r.target.Outputs)
	maps.Copy(layer, layers[secretsLayer])
	for name, v := range outputs {
		if !v.IsNull() || layer[name] == cty.NilVal {
			layer[name] = v
		}
	}
	layers[secretsLayer] = layer
	r.target.Outputs = layers
	for _, one := range results {
		r.secrets.findings = append(r.secrets.findings, one.findings...)
		r.secrets.hosts = append(r.secrets.hosts, one.hosts...)
		r.secrets.unread = cmp.Or(r.secrets.unread, one.unread)
		if len(one.findings) > 0 {
			r.secrets.store = one.store
		}
	}
}

const identity = "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"

// readInfisical reads the secrets for a stage's data sources from Infisical.
func (r *checkRun) readInfisical(ctx context.Context, s *config.Stage, module *tfeval.Module,
	sources []tfeval.Block) secrets {
	host := "https://app.infisical.com" // the provider's default
	for _, p := range module.Known("provider", "infisical") {
		host = cmp.Or(p.Text("host"), host)
	}
	result := secrets{store: "infisical", hosts: []string{host}}
	data := map[string]cty.Value{}
	for _, source := range sources {
		f := infisical.Folder{
			Host: host, Project: source.Text("workspace_id"), Environment: source.Text("env_slug"),
			Path: source.Text("folder_path"),
		}
		if !infisical.Identified(r.machine.Environ) {
			result.unread = identity + " are not set, and the secrets have not been read"
			result.findings = append(result.findings,
				red("set them to those of the machine identity that Terraform uses",
					"%s: %s are not both set", s.Name, identity)...)
			continue
		}
		values, err := f.Read(ctx, r.machine.Environ)
		if err != nil {
			result.unread = "Infisical's secrets could not be read"
			what, fix := reason(ctx, err).Error(), "check infisical_host and the network"
			if e := (*infisical.Error)(nil); errors.As(err, &e) && e.Fix != "" {
				what, fix = fmt.Sprintf("%s: %v", e.Object, e.Err), e.Fix
			}
			result.findings = append(result.findings, red(fix, "%s", what)...)
			continue
		}
		entry := cty.Object(map[string]cty.Type{"value": cty.String})
		all := cty.MapValEmpty(entry)
		if len(values) > 0 {
			entries := map[string]cty.Value{}
			for name, value := range values {
				entries[name] = cty.ObjectVal(map[string]cty.Value{"value": cty.StringVal(value)})
				r.target.Masker.Add(value)
			}
			all = cty.MapVal(entries)
		}
		data[source.Name] = cty.ObjectVal(map[string]cty.Value{"secrets": all})
		where := fmt.Sprintf("%s, environment %s, at %s", f.Path, f.Environment, host)
		result.findings = append(result.findings,
			complete(module, source, data[source.Name], s.Name, where, len(values),
				"add them in Infisical")...)
	}
	module.SetData(map[string]map[string]cty.Value{"infisical_secrets": data})
	return result
}

// readVault reads the secrets for a stage's data source from Vault. The stage's preflight
// has the address and the login.
func (r *checkRun) readVault(ctx context.Context, s *config.Stage, module *tfeval.Module) secrets {
	sources := module.Known("data", "vault_kv_secret_v2")
	if len(sources) == 0 {
		return secrets{}
	}
	failed := func(why string, found []Finding) secrets {
		return secrets{store: "vault", unread: why,
			findings: found}
	}
	for _, p := range s.Preflights {
		if p.Type.Name != vault.Preflight {
			continue
		}
		values, diags := p.Values(s, config.Scope{Outputs: r.target.Outputs})
		if diags.HasErrors() {
			return failed("the address of its Vault is not known", red("", "%v", diags))
		}
		place := vault.PlaceOf(values)
		const unread = "Vault's secrets could not be read"
		if _, err := place.Server.Token(ctx, r.machine.Environ); err != nil {
			return failed(unread, vaultUnavailable())
		}
		stored, err := place.Read(ctx, r.machine.Environ)
		if err == nil && len(stored) == 0 {
			err = place.Usable(ctx, r.machine.Environ) // it explains why there are none
		}
		if err != nil {
			return failed(unread, vaultProblem(ctx, err))
		}
		for _, value := range stored {
			r.target.Masker.Add(value)
		}
		text, err := json.Marshal(stored)
		if err != nil {
			return failed("", red("", "%v", err))
		}
		self := cty.ObjectVal(map[string]cty.Value{"data_json": cty.StringVal(string(text))})
		module.SetData(map[string]map[string]cty.Value{"vault_kv_secret_v2": {sources[0].Name: self}})
		where := fmt.Sprintf("%s below %s at %s", place.Path, place.Mount, place.Server.Address)
		return secrets{store: "vault", findings: complete(module, sources[0], self, s.Name, where,
			len(stored),
			fmt.Sprintf("castle secrets seed %s/%s", r.target.Name, r.target.Platform))}
	}
	return secrets{store: "vault"}
}

// complete checks the store's answer against the postconditions of the data source.
func complete(module *tfeval.Module, source tfeval.Block, self cty.Value, stage, where string, n int,
	fix string) (found []Finding) {
	for _, why := range module.FailedPostconditions(source, self) {
		found = append(found, red(fix, "%s", why)...)
	}
	return orGreen(found, "%s: %d secrets; those that %s requires exist and are not empty", where, n, stage)
}

// inputs returns the values of a stage's variables, unknown where they are outputs of
// stages that have none yet.
func (r *checkRun) inputs(s *config.Stage) map[string]cty.Value {
	inputs, _ := s.Inputs(config.Scope{Outputs: r.target.Outputs}) //nolint:errcheck // see above
	for name, v := range inputs {
		if s.Variables[name].Sensitive {
			walkStrings(v, func(text string) { r.target.Masker.Add(text) })
		}
	}
	return inputs
}

// variable returns the first known value of a variable of this name among the stages.
func (r *checkRun) variable(name string) cty.Value {
	for _, s := range r.target.Stages {
		if _, ok := s.Variables[name]; !ok {
			continue
		}
		if v := r.inputs(s)[name]; v != cty.NilVal && v.IsWhollyKnown() && !v.IsNull() {
			return v
		}
	}
	return cty.NilVal
}

// text returns the value of a string variable, "" if it is not known.
func (r *checkRun) text(name string) string { return known(r.variable(name)) }

// known returns the string v, "" if it is none or not known.
func known(v cty.Value) string {
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

// walkStrings calls f with every string inside v that is not empty.
func walkStrings(v cty.Value, f func(string)) {
	if v == cty.NilVal {
		return
	}
	_ = cty.Walk(v, func(_ cty.Path, inner cty.Value) (bool, error) { // the function returns no error
		if text := known(inner); text != "" {
			f(text)
		}
		return true, nil
	})
}
