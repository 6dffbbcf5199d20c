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

// boundPreflight is a stage's preflight with those of its values that are known.
type boundPreflight struct {
	stage     *config.Stage
	preflight *config.Preflight
	values    gate.Values
}

// preflights returns the preflights of the given types.
func (r *checkRun) preflights(types ...string) (all []boundPreflight) {
	for _, s := range r.target.Stages {
		for _, p := range s.Preflights {
			if slices.Contains(types, p.Type.Name) {
				// unknown values are left out
				values, _ := p.Values(s, config.Scope{Outputs: r.target.Outputs}) //nolint:errcheck
				all = append(all, boundPreflight{s, p, values})
			}
		}
	}
	return all
}

// inspect runs a preflight once. If it cannot, the findings explain why.
func (r *checkRun) inspect(ctx context.Context, p boundPreflight) (gate.Inspection, []Finding) {
	preflight, err := p.preflight.Type.New(p.preflight.Name(), gate.Target{Environ: r.machine.Environ},
		p.values)
	if err != nil {
		return gate.Inspection{}, red("", "%v", err)
	}
	state, err := r.target.Known(p.stage)
	if err != nil {
		return gate.Inspection{}, red("", "%v", err)
	}
	saw, err := preflight.Inspect(ctx, state, func(string) {})
	if err != nil {
		return saw, grey("%v", reason(ctx, err))
	}
	return saw, nil
}

// obstacles reports objects that would stop a create.
func obstacles(objects ...gate.Foreign) (found []Finding) {
	for _, f := range objects {
		what := f.What
		if f.Why != "" {
			what += "; " + f.Why
		}
		found = append(found, red(strings.Join(f.Fixes, "; or "), "%s", what)...)
	}
	return found
}

// talosMachines checks that existing machines wait for the cluster's configuration.
// Before its secrets exist, none can be the cluster's own.
func (r *checkRun) talosMachines() (all []check) {
	for _, p := range r.preflights(talos.PreflightMaintenance) {
		all = append(all, check{"machines", func(ctx context.Context) []Finding {
			saw, found := r.inspect(ctx, p)
			if found != nil {
				return found
			}
			found = obstacles(slices.Concat(saw.Foreign, saw.Unusable, saw.Unverified)...)
			if len(saw.Present) > 0 {
				return orGreen(found, "of this cluster: %s", strings.Join(saw.Present, ", "))
			}
			return orGreen(found, "each waits for its configuration")
		}})
	}
	return all
}

// existingAddresses returns the addresses of machines that must exist before a create.
func (r *checkRun) existingAddresses() map[string]bool {
	all := map[string]bool{}
	for _, p := range r.preflights(talos.PreflightMaintenance) {
		endpoints := map[string]string{}
		if err := p.values.Decode("endpoints", &endpoints); err != nil {
			continue // the configuration's validation reports it
		}
		for _, endpoint := range endpoints {
			if a, err := netip.ParseAddr(endpoint); err == nil {
				all[a.String()] = true
			}
		}
	}
	return all
}
