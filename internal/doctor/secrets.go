package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/infisical"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// secretsLayer is the layer whose outputs others need before a cluster is there.
const secretsLayer = "secrets"

// spoken is what reading the secrets has come to.
type spoken struct {
	findings []Finding
	keeper   string   // infisical or vault: what the findings are about
	hosts    []string // of Infisical
	unread   string   // why not all that a stage would say is known; empty if it is
}

// hear reads what the stages of the secrets layer would say, for the checks that
// need it: a stage without resources follows from its variables and its data
// sources, so that neither Terraform nor a state is needed. What it cannot read, a
// state may have said.
func (x *examination) hear(ctx context.Context) spoken {
	ctx, stop := context.WithTimeoutCause(ctx, bound, fmt.Errorf("no answer within %s", bound))
	defer stop()
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := make([]spoken, len(x.Stages))
	said := map[string]cty.Value{}
	for i, s := range x.Stages {
		if s.Layer != secretsLayer {
			continue
		}
		inputs := x.inputs(s)
		r := tfeval.Read(s, inputs)
		if r.Has("resource") {
			continue // it makes what it says
		}
		all.Go(func() {
			answers[i] = x.consult(ctx, s, r)
			outputs := r.Outputs()
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(said, outputs)
			for name, v := range outputs {
				if s.Outputs[name].Sensitive {
					x.hide(v)
				}
			}
		})
	}
	all.Wait()
	x.Outputs = maps.Clone(x.Outputs)
	if x.Outputs == nil {
		x.Outputs = map[string]map[string]cty.Value{}
	}
	layer := maps.Clone(x.Outputs[secretsLayer])
	if layer == nil {
		layer = map[string]cty.Value{}
	}
	for name, v := range said {
		if !v.IsNull() || layer[name] == cty.NilVal {
			layer[name] = v
		}
	}
	x.Outputs[secretsLayer] = layer
	var sum spoken
	for _, a := range answers {
		sum.findings, sum.hosts = append(sum.findings, a.findings...), append(sum.hosts, a.hosts...)
		if sum.unread == "" {
			sum.unread = a.unread
		}
		if len(a.findings) > 0 {
			sum.keeper = a.keeper
		}
	}
	return sum
}

// consult asks Infisical, or a Vault, what the data sources of a stage would.
func (x *examination) consult(ctx context.Context, s *config.Stage, r *tfeval.Module) spoken {
	result := spoken{keeper: "infisical"}
	sources := r.Known("data", "infisical_secrets")
	if len(sources) == 0 {
		return x.consultVault(ctx, s, r)
	}
	host := ""
	for _, p := range r.Known("provider", "infisical") {
		host = p.Text("host")
	}
	if host == "" {
		host = "https://app.infisical.com" // the provider's own default
	}
	result.hosts = []string{host}
	answers := map[string]cty.Value{}
	for _, source := range sources {
		f := infisical.Folder{Host: host, Project: source.Text("workspace_id"), Environment: source.Text("env_slug"), Path: source.Text("folder_path")}
		place := fmt.Sprintf("%s, environment %s, at %s", f.Path, f.Environment, host)
		if !infisical.Identified(x.Environ) {
			result.unread = "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET are not set, and nothing was read from Infisical yet"
			result.findings = append(result.findings, red("set them to the machine identity's: Terraform reads the secrets with it",
				"%s: INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET are not both set", s.Name)...)
			continue
		}
		secrets, err := f.Read(ctx, x.Environ)
		if err != nil {
			result.unread = "Infisical's secrets could not be read"
			what, way := reason(ctx, err).Error(), "check infisical_host and the network"
			if e := (*infisical.Error)(nil); errors.As(err, &e) && e.Fix != "" {
				what, way = fmt.Sprintf("%s: %v", e.Object, e.Err), e.Fix
			}
			result.findings = append(result.findings, red(way, "%s", what)...)
			continue
		}
		values := map[string]cty.Value{}
		for name, value := range secrets {
			values[name] = cty.ObjectVal(map[string]cty.Value{"value": cty.StringVal(value)})
			x.Masker.Add(value)
		}
		self := cty.ObjectVal(map[string]cty.Value{"secrets": cty.MapValEmpty(cty.Object(map[string]cty.Type{"value": cty.String}))})
		if len(values) > 0 {
			self = cty.ObjectVal(map[string]cty.Value{"secrets": cty.MapVal(values)})
		}
		answers[source.Name] = self
		unmet := r.FailedPostconditions(source, self)
		for _, why := range unmet {
			result.findings = append(result.findings, red("what it says, in Infisical", "%s", why)...)
		}
		if len(unmet) == 0 {
			result.findings = append(result.findings, green("%s: %d secrets, all that %s asks for there and none of them empty", place, len(values), s.Name)...)
		}
	}
	r.SetData(map[string]map[string]cty.Value{"infisical_secrets": answers})
	return result
}

// inputs are the values of a stage's variables, unknown where a stage has to say them.
func (x *examination) inputs(s *config.Stage) map[string]cty.Value {
	inputs, _ := s.Inputs(config.Scope{Outputs: x.Outputs}) //nolint:errcheck // what is not known yet stays unknown
	for name, v := range inputs {
		if s.Variables[name].Sensitive {
			x.hide(v)
		}
	}
	return inputs
}

// hide keeps every string inside v out of what is told.
func (x *examination) hide(v cty.Value) {
	_ = cty.Walk(v, func(_ cty.Path, inner cty.Value) (bool, error) { // the function returns none
		if inner.IsKnown() && !inner.IsNull() && inner.Type() == cty.String {
			x.Masker.Add(inner.AsString())
		}
		return true, nil
	})
}

// variable finds the first variable of this name among the stages, if it is known.
func (x *examination) variable(name string) cty.Value {
	for _, s := range x.Stages {
		if _, ok := s.Variables[name]; !ok {
			continue
		}
		if v := x.inputs(s)[name]; v != cty.NilVal && v.IsWhollyKnown() && !v.IsNull() {
			return v
		}
	}
	return cty.NilVal
}

// text is a variable that is a string; empty if it is not known.
func (x *examination) text(name string) string {
	if v := x.variable(name); v != cty.NilVal && v.Type() == cty.String {
		return v.AsString()
	}
	return ""
}
