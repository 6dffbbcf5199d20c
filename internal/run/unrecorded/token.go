package unrecorded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secretstore"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// look is a look for the machines of one stage.
type look struct {
	run       *run.Run
	stage     *config.Stage
	preflight *config.Preflight
	platform  platform.Platform
	known     []gate.Known // the machines that the record has
	others    []gate.Known // those of other stages
	found     *Found
}

// ask lists the machines, and reads the recorded ones, with the first API token that the datacenter accepts.
// values are the configured ones; lacks is why they are incomplete.
func (l *look) ask(ctx context.Context, values gate.Values, lacks error) (
	machines []platform.Guest, unseen []int, err error) {
	c := l.run.Cluster
	var facts []platform.Fact
	account := func(values gate.Values, err error) (platform.Account, error) {
		if err != nil {
			return platform.Account{}, err
		}
		l.found.Endpoint = values.String("endpoint")
		a, _, err := l.platform.Account(values)
		return a, err
	}
	_, variable := l.platform.Variables()
	sources := []platform.Source{
		{Name: "the configuration", Account: func(context.Context) (platform.Account, error) {
			return account(values, lacks)
		}},
		{Name: variable, Account: func(context.Context) (platform.Account, error) {
			a, _, err := l.platform.Account(values)
			if !values.Has("endpoint") {
				err = errors.New("the address of " + l.platform.Name() + " is not known")
			}
			set := l.platform.Environment(c.Options.Environ)
			a.Token = set.Token
			if set.Endpoint != "" && !l.platform.SameEndpoint(set.Endpoint, a.Endpoint) {
				a.Endpoint = set.Endpoint
			}
			return a, err
		}},
		{Name: "the secret store", Account: func(ctx context.Context) (platform.Account, error) {
			return account(l.stored(ctx))
		}},
	}
	_, from, tried, err := platform.Accepted(ctx, l.platform, values.String("endpoint"), sources,
		func(ctx context.Context, a platform.Account) error {
			c.Masker.Add(a.Token)
			datacenter, err := l.platform.Open(a)
			if err == nil {
				all := slices.Concat(l.known, l.others)
				machines, unseen, err = datacenter.Unrecorded(ctx, c.Config.Name, values, all)
			}
			if err == nil {
				facts, err = datacenter.Facts(ctx, l.known)
			}
			if err == nil {
				l.found.Costs, _ = datacenter.Costs(ctx, values) //nolint:errcheck // then they are not known
			}
			return err
		})
	l.found.Facts = append(l.found.Facts, facts...)
	if err == nil && from == "" {
		err = fmt.Errorf("no API token is known that it accepts (%s)", strings.Join(tried, "; "))
	}
	return machines, unseen, err
}

// values returns the preflight's values by the recorded outputs, and by those that the stages of the secrets
// layer have now, with what their store holds. The error is set without an API token.
func (l *look) values(stored map[string]string) (gate.Values, error) {
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
				l.run.Cluster.Masker.Add(tfeval.Strings(v)...)
			}
			if !v.IsNull() {
				layer[name] = v
			}
		}
	}
	values, _ := l.preflight.Values(l.stage, scope) //nolint:errcheck // what is not known is absent
	if !values.Has("endpoint") || !values.Has("api_token") {
		return values, errors.New("it has none")
	}
	return values, nil
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
	values, err := l.values(secrets)
	if err != nil {
		err = fmt.Errorf("%s: %w", collection.Where, err)
	}
	return values, err
}
