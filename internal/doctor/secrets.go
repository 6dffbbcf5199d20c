package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/secretstore/infisical"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// secretsLayer is the layer whose outputs other checks need.
const secretsLayer = "secrets"

// secrets is the result of reading the secret store.
type secrets struct {
	findings []finding.Finding
	store    string   // infisical, vault or secrets: the name of the findings
	hosts    []string // of Infisical
	unread   string   // why not all outputs of the layer are known; empty if they are
}

// readSecrets evaluates the outputs of the secrets layer. A stage without resources
// depends only on its variables and data sources, so neither Terraform nor a state is
// needed. An output that cannot be evaluated keeps its value in the state.
func (r *checkRun) readSecrets(ctx context.Context) {
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer stop()
	stages := xslices.Filter(r.target.Stages, func(s *config.Stage) bool { return s.Layer == secretsLayer })
	// Side by side, since a store that does not answer takes all the time.
	results, modules := make([]secrets, len(stages)), make([]*tfeval.Module, len(stages))
	each(stages, func(i int, s *config.Stage) {
		one := &checkRun{machine: r.machine, target: r.target}
		module := tfeval.Read(s, r.inputs(s))
		if len(module.Instances("resource", "")) > 0 {
			return // its outputs are known after apply
		}
		if sources := module.Known("data", "infisical_secrets"); len(sources) > 0 {
			one.readInfisical(ctx, s, module, sources)
		} else {
			one.readVault(ctx, s, module)
		}
		if one.secrets.store == "" { // the cluster's own values are the secrets
			for _, why := range module.FailedPreconditions() {
				one.secrets.store = "secrets"
				one.secrets.failed("secrets.tfvars is incomplete, see above",
					finding.Obstacle("fill in secrets.tfvars of the cluster", "%s", why))
			}
		}
		results[i], modules[i] = one.secrets, module
	})
	layers, layer := map[string]map[string]cty.Value{}, map[string]cty.Value{}
	maps.Copy(layers, r.target.Outputs)
	maps.Copy(layer, layers[secretsLayer])
	for i, s := range stages {
		if modules[i] == nil {
			continue
		}
		r.secrets.add(results[i])
		for name, v := range modules[i].Outputs() {
			if s.Outputs[name].Sensitive {
				r.target.Masker.Add(tfeval.Strings(v)...)
			}
			if !v.IsNull() || layer[name] == cty.NilVal {
				layer[name] = v
			}
		}
	}
	layers[secretsLayer] = layer
	r.target.Outputs = layers
}

// add adds the result of another stage.
func (s *secrets) add(other secrets) {
	s.store, s.unread = cmp.Or(other.store, s.store), cmp.Or(s.unread, other.unread)
	s.findings, s.hosts = append(s.findings, other.findings...), append(s.hosts, other.hosts...)
}

// failed notes why the outputs of the layer are not known.
func (s *secrets) failed(unread string, found []finding.Finding) {
	s.unread, s.findings = cmp.Or(s.unread, unread), append(s.findings, found...)
}

const identity = "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"

// readInfisical reads the secrets for a stage's data sources from Infisical.
func (r *checkRun) readInfisical(ctx context.Context, s *config.Stage, module *tfeval.Module,
	sources []tfeval.Block) {
	host := infisical.Cloud
	for _, p := range module.Known("provider", "infisical") {
		host = cmp.Or(p.Text("host"), host)
	}
	r.secrets.store, r.secrets.hosts = "infisical", append(r.secrets.hosts, host)
	data := map[string]cty.Value{}
	for _, source := range sources {
		f := infisical.Folder{Host: host, Project: source.Text("workspace_id"),
			Environment: source.Text("env_slug"), Path: source.Text("folder_path")}
		if !infisical.Identified(r.machine.Environ) {
			r.secrets.failed(identity+" are not set, and the secrets have not been read",
				finding.Obstacle("set them to those of the machine identity that Terraform uses",
					"%s: %s are not both set", s.Name, identity))
			continue
		}
		values, err := f.Read(ctx, r.machine.Environ)
		if err != nil {
			what, fix := finding.Reason(ctx, err).Error(), "check infisical_host and the network"
			if e := (*infisical.Error)(nil); errors.As(err, &e) && e.Fix != "" {
				what, fix = fmt.Sprintf("%s: %v", e.Object, e.Err), e.Fix
			}
			r.secrets.failed("Infisical's secrets could not be read", finding.Obstacle(fix, "%s", what))
			continue
		}
		entries := map[string]cty.Value{}
		for name, value := range values {
			entries[name] = cty.ObjectVal(map[string]cty.Value{"value": cty.StringVal(value)})
		}
		data[source.Name] = cty.ObjectVal(map[string]cty.Value{"secrets": cty.ObjectVal(entries)})
		where := fmt.Sprintf("%s, environment %s, at %s", f.Path, f.Environment, host)
		r.complete(module, source, data[source.Name], values, s.Name, where, "add them in Infisical")
	}
	module.SetData(map[string]map[string]cty.Value{"infisical_secrets": data})
}

// readVault reads the secrets for a stage's data source from Vault, if it has one. The stage's preflight
// has the address and the login.
func (r *checkRun) readVault(ctx context.Context, s *config.Stage, module *tfeval.Module) {
	sources := module.Known("data", "vault_kv_secret_v2")
	isVault := func(p *config.Preflight) bool { return p.Type.Name == vault.Preflight }
	i := slices.IndexFunc(s.Preflights, isVault)
	if len(sources) == 0 || i < 0 {
		return
	}
	r.secrets.store = "vault"
	values, diags := s.Preflights[i].Values(s, config.Scope{Outputs: r.target.Outputs})
	if diags.HasErrors() {
		r.secrets.failed("the address of its Vault is not known", finding.Obstacle("", "%v", diags))
		return
	}
	place := vault.PlaceOf(values)
	const unread = "Vault's secrets could not be read"
	if _, err := place.Server.Token(ctx, r.machine.Environ); err != nil {
		r.secrets.failed(unread, vaultUnavailable())
		return
	}
	stored, err := place.Read(ctx, r.machine.Environ)
	if err == nil && len(stored) == 0 {
		err = place.Usable(ctx, r.machine.Environ) // it explains why there are none
	}
	text, unencoded := json.Marshal(stored)
	if err = cmp.Or(err, unencoded); err != nil {
		r.secrets.failed(unread, vaultProblem(ctx, err))
		return
	}
	self := cty.ObjectVal(map[string]cty.Value{"data_json": cty.StringVal(string(text))})
	module.SetData(map[string]map[string]cty.Value{"vault_kv_secret_v2": {sources[0].Name: self}})
	where := fmt.Sprintf("%s below %s at %s", place.Path, place.Mount, place.Server.Address)
	r.complete(module, sources[0], self, stored, s.Name, where,
		fmt.Sprintf("castle secrets seed %s/%s", r.target.Name, r.target.Platform))
}

// complete masks a store's values, and checks its answer against the postconditions of the data source.
func (r *checkRun) complete(module *tfeval.Module, source tfeval.Block, self cty.Value,
	values map[string]string, stage, where, fix string) {
	r.target.Masker.Add(slices.Collect(maps.Values(values))...)
	found := xslices.FlatMap(module.FailedPostconditions(source, self), func(why string) []finding.Finding {
		return finding.Obstacle(fix, "%s", why)
	})
	r.secrets.findings = append(r.secrets.findings,
		finding.OrGood(found, "%s: %d secrets; those that %s requires exist and are not empty", where,
			len(values), stage)...)
}

// inputs returns the values of a stage's variables, unknown where they are outputs that no stage has yet.
func (r *checkRun) inputs(s *config.Stage) map[string]cty.Value {
	inputs, _ := s.Inputs(config.Scope{Outputs: r.target.Outputs}) //nolint:errcheck // see above
	for name, v := range inputs {
		if s.Variables[name].Sensitive {
			r.target.Masker.Add(tfeval.Strings(v)...)
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
func (r *checkRun) text(name string) string { return tfeval.Text(r.variable(name)) }

// createTime is a bound on the duration of a create, machines and images included.
const createTime = time.Hour

// vaultChecks checks every Vault that a preflight uses: whether it answers, its token, and mounts.
func vaultChecks(r *checkRun) (all []finding.Check) {
	var servers []vault.Server
	var mounts []finding.Check
	for _, p := range r.preflights(vault.Preflight, vault.PreflightMount) {
		server := vault.ServerOf(p.Values)
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
			all = append(all, serverChecks(r.machine.Environ, server)...)
		}
		if p.Preflight.Type.Name == vault.PreflightMount {
			mounts = append(mounts, finding.Check{Name: "vault.mounts",
				Run: func(ctx context.Context) []finding.Finding {
					if _, err := server.Token(ctx, r.machine.Environ); err != nil {
						return vaultUnavailable()
					}
					free := fmt.Sprintf("%s is free for %s, and the token may write to it",
						p.Values.String("path"), p.Stage.Name)
					return r.inspect(ctx, p, false, free)
				}})
		}
	}
	all = append(all, mounts...)
	if host := r.text("vault_database_host"); host != "" {
		all = append(all, finding.Check{Name: "vault.database",
			Run: func(ctx context.Context) []finding.Finding { return r.database(ctx, host) }})
	}
	return all
}

func serverChecks(environ []string, v vault.Server) []finding.Check {
	return []finding.Check{
		{Name: "vault.api", Run: func(ctx context.Context) []finding.Finding {
			h, err := v.Health(ctx, environ)
			switch {
			case err != nil:
				return vaultProblem(ctx, err)
			case h.Standby:
				return finding.Warning("set vault_address to the active node or the load balancer",
					"%s is a standby: it forwards requests to the active node", v.Address)
			}
			return finding.Good("%s answers and is unsealed, version %s", v.Address, h.Version)
		}},
		{Name: "vault.token", Run: func(ctx context.Context) []finding.Finding {
			if _, err := v.Health(ctx, environ); err != nil {
				return vaultUnavailable()
			}
			token, err := v.Token(ctx, environ)
			left := token.Left
			switch {
			case err != nil:
				return vaultProblem(ctx, err)
			case v.Role.ID != "":
				return finding.Good("the AppRole at auth/%s can log in, and is not root", v.Role.Mount)
			case left == 0:
				return finding.Warning(
					"use one that expires: vault token create -orphan -policy=castle -period=24h",
					"the token is not root's, and never expires")
			case left < createTime:
				return finding.Warning("renew it: vault token renew, or create a new one",
					"the token expires in %s, and a create may take longer", left.Round(time.Second))
			}
			return finding.Good("the token is not root's, and is valid for %s", left.Round(time.Second))
		}},
		finding.Clock("vault.clock", "Vault", func(ctx context.Context) (time.Time, error) {
			h, err := v.Health(ctx, environ)
			if err != nil {
				err = errors.New("it is not available, see above")
			}
			return h.Time, err
		}),
	}
}

// vaultUnavailable is the finding of a check that requires a Vault that another check reports.
func vaultUnavailable() []finding.Finding {
	return finding.Unchecked("the Vault is not available, see above")
}

func vaultProblem(ctx context.Context, err error) []finding.Finding {
	if p := (*vault.Problem)(nil); errors.As(err, &p) && ctx.Err() == nil {
		return finding.Obstacle(strings.Join(p.Fixes, "; or "), "%s: %s", p.Object, p.Reason)
	}
	return finding.Obstacle("check the Vault and the network", "%v", finding.Reason(ctx, err))
}

// database checks that the database answers for which Vault creates users. It is created
// with the cluster; Vault must reach it, not this machine, so a failure is a warning.
func (r *checkRun) database(ctx context.Context, host string) []finding.Finding {
	if !r.target.Exists {
		return finding.Unchecked("the database is created with the cluster")
	}
	port := cmp.Or(tfeval.Printed(r.variable("vault_database_port")), "5432")
	if err := dial(ctx, host, port); err != nil {
		return finding.Warning(
			"check PostgreSQL and its Service in the cluster; if only this machine cannot reach "+
				"it, ask Vault: vault read database-<cluster>/creds/<role>",
			"the database at %s does not answer, so Vault cannot create users for it: %v",
			net.JoinHostPort(host, port), finding.Reason(ctx, err))
	}
	return finding.Good("the database at %s answers", net.JoinHostPort(host, port))
}
