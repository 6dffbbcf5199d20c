package applied

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Drift is the result of a look at a stage's objects.
type Drift struct {
	Differences []revision.Difference
	// Unknown is why castle could not look at everything; empty if it could.
	Unknown string
	// OnlyTerraform: the stage reads what has no revision, so that only a refresh can look.
	OnlyTerraform bool
}

// None reports whether castle has looked at everything and nothing differs.
func (d Drift) None() bool { return len(d.Differences) == 0 && d.Unknown == "" }

// String is "drifted: ", with a few differences, or "unknown: " with the reason.
func (d Drift) String() string {
	if d.Unknown != "" {
		return "unknown: " + d.Unknown
	}
	texts := xslices.Map(d.Differences, revision.Difference.String)
	const most = 5
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most], fmt.Sprintf("and %d more", more))
	}
	return "drifted: " + strings.Join(texts, "; ")
}

// Look compares a stage's objects with those of its last apply, and checks its immediate gates, at once.
func Look(ctx context.Context, r *run.Run, s *config.Stage, st *state.State) (
	d Drift, closed *waiting.GateError, err error) {
	var all sync.WaitGroup
	all.Go(func() { d, err = FindDrift(ctx, r, s, st) })
	closed = waiting.FirstClosedGate(ctx, r, s, s.ImmediateGates())
	all.Wait()
	return d, closed, err
}

// FindDrift compares the objects of a stage with those of its last apply, whose fingerprint is unchanged.
func FindDrift(ctx context.Context, r *run.Run, s *config.Stage, st *state.State) (Drift, error) {
	recorded, err := revision.Recorded(r.Cluster.Dir.Stage(s.Name)).Read()
	if err != nil {
		return Drift{}, err
	}
	if recorded == nil {
		return Drift{Unknown: "its objects were not recorded yet"}, nil
	}
	if s.Volatile {
		for _, res := range st.Resources {
			covers := func(o revision.Object) bool { return o.Address == res.Address }
			if res.Mode != cluster.ManagedMode && !slices.ContainsFunc(*recorded, covers) {
				return Drift{Unknown: "only Terraform can read " + res.Address, OnlyTerraform: true}, nil
			}
		}
		if len(*recorded) == 0 {
			return Drift{Unknown: "only Terraform can read it", OnlyTerraform: true}, nil
		}
	}
	if len(tfeval.Map(st.Outputs[cluster.LeasesOutput].Value)) > 0 {
		return Drift{Unknown: "only Terraform can read its leases", OnlyTerraform: true}, nil
	}
	now, err := revision.Read(ctx, cluster.RevisionSystems(), stageOf(r, s, st), *recorded)
	if err != nil {
		if ctx.Err() != nil {
			return Drift{}, context.Cause(ctx)
		}
		return Drift{Unknown: err.Error()}, nil
	}
	return Drift{Differences: revision.Compare(*recorded, now)}, nil
}

// RecordRevisions records the objects of a stage after an apply. It reads them before it checks all gates: a
// revision that no gate has seen is never recorded as good. If castle cannot read them it records none, so
// that the next run looks properly. The fingerprint, which is written next, brings them to the disk.
func RecordRevisions(ctx context.Context, r *run.Run, s *config.Stage) error {
	dir := r.Cluster.Dir.Stage(s.Name)
	st, err := dir.State()
	if err != nil {
		return err
	}
	for {
		objects, err := revision.Read(ctx, cluster.RevisionSystems(), stageOf(r, s, st), nil)
		if err != nil {
			r.Notice(fmt.Sprintf("%s: cannot record its objects, so the next run plans it anew: %v", s.Name,
				err))
			return revision.Recorded(dir).Clear()
		}
		if waiting.FirstClosedGate(ctx, r, s, s.Gates) == nil {
			// None is known, too.
			return revision.Recorded(dir).WritePending(append([]revision.Object{}, objects...))
		}
		if err := waiting.ForGates(ctx, r, s, s.Gates); err != nil {
			return err
		}
	}
}

func stageOf(r *run.Run, s *config.Stage, st *state.State) revision.Stage {
	module := sync.OnceValue(func() *tfeval.Module {
		inputs, _ := r.Inputs(s) //nolint:errcheck // those that are not known
		return tfeval.Read(s, inputs)
	})
	o := revision.Stage{
		Name: s.Name, State: st, Target: r.Outputs.Target(), InCluster: s.InCluster,
		Preflights: map[string]gate.Values{},
		Argument: func(provider, argument string) string {
			for _, p := range module().Known("provider", provider) {
				if text := p.Text(argument); text != "" {
					return text
				}
			}
			return ""
		},
		Ignores: func(typ, name string) bool { return module().Ignores(typ, name) },
		Secrets: func() []string { return tfeval.Strings(module().Local("names")) },
	}
	o.Target.Environ = r.Cluster.Options.Environ
	for _, p := range s.Preflights {
		if values, diags := p.Values(s, r.Outputs.Scope(s)); !diags.HasErrors() {
			o.Preflights[p.Type.Name] = values
		}
	}
	return o
}
