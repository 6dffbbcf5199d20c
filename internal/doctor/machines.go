package doctor

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// machines asks machines that somebody else made whether they wait for the cluster.
// As long as its secrets are not made, none can be its own.
func (x *examination) machines() (all []question) {
	for _, e := range x.expectations() {
		all = append(all, question{"machines", func(ctx context.Context) []Finding {
			saw, found := x.inspect(ctx, e.stage, e.preflight, e.values)
			if found != nil {
				return found
			}
			if found = inTheWay(slices.Concat(saw.Foreign, saw.Unusable, saw.Unverified)); len(found) > 0 {
				return found
			}
			if len(saw.Present) > 0 {
				return green("of this cluster: %s", strings.Join(saw.Present, ", "))
			}
			return green("each waits for its configuration")
		}})
	}
	return all
}

// expectation is a preflight that wants to find machines.
type expectation struct {
	stage     *config.Stage
	preflight *config.Preflight
	values    gate.Values // those that are known
}

func (x *examination) expectations() (all []expectation) {
	for _, s := range x.Stages {
		for _, p := range s.Preflights {
			if p.Type.Name == talos.PreflightMaintenance {
				values, _ := p.Values(s, config.Scope{Outputs: x.Outputs}) //nolint:errcheck // what is not known is left out
				all = append(all, expectation{s, p, values})
			}
		}
	}
	return all
}

// inhabited are the addresses where somebody has to live already.
func (x *examination) inhabited() map[string]bool {
	all := map[string]bool{}
	for _, e := range x.expectations() {
		endpoints := map[string]string{}
		if err := e.values.Decode("endpoints", &endpoints); err != nil {
			continue // a preflight's arguments are judged when they are read
		}
		for _, endpoint := range endpoints {
			if a, err := netip.ParseAddr(endpoint); err == nil {
				all[a.String()] = true
			}
		}
	}
	return all
}

// inspect asks a preflight; without an answer there is something found already.
func (x *examination) inspect(ctx context.Context, s *config.Stage, p *config.Preflight, values gate.Values) (gate.Inspection, []Finding) {
	preflight, err := p.Type.New(p.Name(), gate.Target{Environ: x.Environ}, values)
	if err != nil {
		return gate.Inspection{}, red("", "%v", err)
	}
	state, err := x.Known(s)
	if err != nil {
		return gate.Inspection{}, red("", "%v", err)
	}
	saw, err := preflight.Inspect(ctx, state, func(string) {})
	if err != nil {
		return saw, grey("%v", reason(ctx, err))
	}
	return saw, nil
}

// inTheWay tells what would stop a create.
func inTheWay(all []gate.Foreign) (found []Finding) {
	for _, f := range all {
		what := f.What
		if f.Why != "" {
			what += "; " + f.Why
		}
		found = append(found, red(strings.Join(f.Fixes, "; or "), "%s", what)...)
	}
	return found
}
