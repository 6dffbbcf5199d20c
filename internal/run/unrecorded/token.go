package unrecorded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secretstore"
)

// look is a look for the machines of one stage.
type look struct {
	run       *run.Run
	stage     *config.Stage
	preflight *config.Preflight
	known     []gate.Known // the machines that the record has
	found     *Found
}

// ask lists the machines with the first API token that Proxmox accepts. values are the configured ones; lacks
// is why they are incomplete.
func (l *look) ask(ctx context.Context, values gate.Values, lacks error) (
	machines []proxmox.Guest, unseen []int, err error) {
	c := l.run.Cluster
	var tried []string
	for _, source := range []func() (gate.Values, error){
		func() (gate.Values, error) { return values, lacks },
		func() (gate.Values, error) { return l.environment(values) },
		func() (gate.Values, error) { return l.stored(ctx) },
	} {
		values, err := source()
		if err == nil {
			c.Masker.Add(values.String("api_token"))
			l.found.Endpoint = values.String("endpoint")
			var client *proxmox.Client
			if client, err = proxmox.ClientOf(values); err == nil {
				machines, unseen, err = client.UnrecordedMachines(ctx, c.Config.Name, values, l.known)
			}
			if proxmox.KindOf(err) != proxmox.Unauthorized {
				return machines, unseen, err
			}
		}
		tried = append(tried, err.Error())
	}
	return nil, nil, fmt.Errorf("no API token is known that it accepts (%s)", strings.Join(tried, "; "))
}

// values returns the preflight's values by the recorded outputs, and by those that the stages of the secrets
// layer have now, with what their store holds. The error is set without an API token.
func (l *look) values(from string, stored map[string]string) (gate.Values, error) {
	scope := l.run.Outputs.Scope(l.stage)
	layer := map[string]cty.Value{}
	maps.Copy(layer, scope.Outputs[cluster.SecretsLayer])
	scope.Outputs[cluster.SecretsLayer] = layer
	for _, s := range l.run.Cluster.Config.Stages {
		if s.Layer != cluster.SecretsLayer {
			continue
		}
		for name, v := range secretstore.Outputs(s, stored) {
			if s.Outputs[name].Sensitive {
				l.run.Cluster.Masker.Add(cluster.StringsIn(v)...)
			}
			if !v.IsNull() {
				layer[name] = v
			}
		}
	}
	values, _ := l.preflight.Values(l.stage, scope) //nolint:errcheck // what is not known is absent
	if !values.Has("endpoint") || !values.Has("api_token") {
		return values, errors.New(from + " has none")
	}
	return values, nil
}

// environment returns values with the API token of the environment, unless it is for another datacenter.
func (l *look) environment(values gate.Values) (gate.Values, error) {
	const name = "PROXMOX_VE_API_TOKEN"
	environ := l.run.Cluster.Options.Environ
	token, endpoint := process.Getenv(environ, name), process.Getenv(environ, "PROXMOX_VE_ENDPOINT")
	switch {
	case token == "":
		return nil, errors.New(name + " is not set")
	case !values.Has("endpoint"):
		return nil, errors.New("the address of Proxmox is not known")
	case endpoint != "" && !proxmox.SameEndpoint(endpoint, values.String("endpoint")):
		return nil, fmt.Errorf("%s is for %s, not for %s", name, endpoint, values.String("endpoint"))
	}
	values = maps.Clone(values)
	values["api_token"] = cty.StringVal(token)
	return values, proxmox.CheckToken(token)
}

// stored returns the values with what the cluster's secret store has now.
func (l *look) stored(ctx context.Context) (gate.Values, error) {
	collection, err := secretstore.Of(l.run.Cluster.Config.Stages)
	if err != nil {
		return nil, err
	}
	secrets, err := collection.Store.Read(ctx, l.run.Cluster.Options.Environ)
	if err != nil {
		return nil, err
	}
	for _, value := range secrets {
		l.run.Cluster.Masker.Add(value)
	}
	return l.values(collection.Where, secrets)
}
