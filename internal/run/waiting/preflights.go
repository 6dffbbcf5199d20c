package waiting

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Adoption is an object that a stage adopts if it exists, because its state lacks it.
type Adoption struct {
	Address, ID string

	Name   string                              // of the lookup
	Lookup func(context.Context) (bool, error) // nil: the import finds out
	Policy gate.Policy                         // how long castle repeats the lookup
}

// Adoptions returns the adoptions of a stage whose id is known. There are none if the run has created all
// that the stage configures. Where the lookup is of the type certain, castle knows that the object is about
// to exist: it is adopted without a lookup.
func Adoptions(r *run.Run, s *config.Stage, st *state.State, certain string) ([]Adoption, error) {
	var all []Adoption
	isNew := r.ConfiguresNew(s)
	for _, a := range s.Adopts {
		known := a.Exists != nil && a.Exists.Type.Name == certain
		if isNew && !known {
			continue
		}
		// An object that only waits for its deletion is present, too.
		present := func(res state.Resource) bool { return res.Address == a.Address }
		if slices.ContainsFunc(st.Resources, present) {
			continue
		}
		id, diags := a.ID(s, r.Outputs.Scope(s))
		one := Adoption{Address: a.Address, ID: id}
		var err error
		switch {
		case diags.HasErrors():
			err = diags
		case id == "":
			continue
		case a.Exists != nil && !known:
			err = one.bind(r, s, a.Exists)
		}
		if err != nil {
			return nil, fmt.Errorf("adopt %s: %w", a.Address, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// bind binds the lookup that decides whether an adoption imports anything.
func (a *Adoption) bind(r *run.Run, s *config.Stage, e *config.Exists) error {
	values, diags := e.Values(s, r.Outputs.Scope(s))
	if diags.HasErrors() {
		return diags
	}
	target := r.Outputs.Target()
	target.Environ = r.Cluster.Options.Environ
	exists, err := e.Type.New(e.Name(), target, values)
	a.Name, a.Lookup, a.Policy = exists.Name, exists.Lookup, e.Policy
	return err
}

// Refuse returns a *run.PreflightError for the objects in a stage's way, or nil if there are none. Of the
// objects that are proved to be the stage's own, but are missing from its state, castle may import those that
// an interrupted run was creating, or all with --adopt.
func Refuse(r *run.Run, s *config.Stage, p *config.Preflight, findings gate.Inspection, adopts bool) error {
	inTheWay := slices.Concat(findings.Unusable, findings.Foreign)
	intent, err := r.Cluster.Dir.Stage(s.Name).Intent().Read()
	if err != nil {
		return err
	}
	for i, f := range inTheWay {
		if f.Marked {
			inTheWay[i].Fixes = slices.Concat(OtherStateFixes(r.Cluster), f.Fixes)
		}
	}
	adopt := "take it over as it is: " + r.Cluster.Command("create") + " --adopt"
	for _, own := range findings.Ours {
		covered := intent.Covers(own.Import.Address, own.Import.ID) ||
			own.NewID && intent.Replaces(own.Import.Address)
		if !adopts && !own.Borrowed && !covered {
			own.AsForeign.Fixes = append([]string{adopt}, own.AsForeign.Fixes...)
			inTheWay = append(inTheWay, own.AsForeign)
		}
	}
	if len(inTheWay) == 0 {
		return nil
	}
	e := &run.PreflightError{Preflight: p.Name(), Foreign: inTheWay,
		TerraformCommand: r.Cluster.TerraformCommand(s.Name),
		UntrackCommand:   r.Cluster.UntrackCommand(s.Name)}
	var missing []string
	for _, need := range s.Needs {
		st, err := r.ReadState(r.Cluster.Dir.Stage(need.Name))
		if err != nil {
			return err
		}
		if !st.Exists {
			missing = append(missing, need.Name)
		}
	}
	if len(missing) > 0 {
		e.First = fmt.Sprintf("%s --only %s", r.Cluster.Command("create"), strings.Join(missing, ","))
	}
	return e
}

// OtherStateFixes are the fixes for objects of a cluster that its record lacks: where that may be instead.
// None deletes them: they may be somebody else's.
func OtherStateFixes(c *cluster.Cluster) []string {
	lost := `if its record is lost for good, read "When the record is lost" in docs/operations.md`
	if c.Store == nil {
		return []string{fmt.Sprintf("use the state directory that records this cluster: --state-dir DIR, or "+
			"CASTLE_STATE_DIR (this one is %s)", c.Shared("")), lost}
	}
	return []string{
		fmt.Sprintf("use the store that records this cluster: the block state of castle.hcl, or "+
			"CASTLE_STATE_STORE (this one is %s)", c.Place()),
		fmt.Sprintf("if a state directory on some machine records it, migrate that one there: %s --to %s",
			c.Command("state migrate"), c.Place()),
		lost,
	}
}

// PreflightTarget is what a preflight may read beside its arguments. The key is that of the state directory,
// so that it serves before this run has read its stage.
func PreflightTarget(c *cluster.Cluster) gate.Target {
	return gate.Target{Environ: c.Options.Environ, MachineKey: cluster.MachineKey(c.Dir)}
}

// BindPreflight binds a preflight of a stage to the outputs that it reads.
func BindPreflight(r *run.Run, s *config.Stage, p *config.Preflight) (gate.Preflight, error) {
	r.Inputs(s) //nolint:errcheck // it masks them, and the preflight may not need all
	values, diags := p.Values(s, r.Outputs.Scope(s))
	if diags.HasErrors() {
		return gate.Preflight{}, diags
	}
	return p.Type.New(p.Name(), PreflightTarget(r.Cluster), values)
}

// Advise reports a preflight's advice, if it has any.
func Advise(ctx context.Context, r *run.Run, s *config.Stage, p *config.Preflight) error {
	preflight, err := BindPreflight(r, s, p)
	if err != nil || preflight.Advice == nil {
		return err
	}
	if text := preflight.Advice(ctx); text != "" {
		r.Notice(text)
	}
	return nil
}

// Inspect runs one preflight of a stage.
func Inspect(ctx context.Context, r *run.Run, s *config.Stage, p *config.Preflight) (gate.Inspection, error) {
	preflight, err := BindPreflight(r, s, p)
	if err != nil {
		return gate.Inspection{}, err
	}
	st, err := r.ReadState(r.Cluster.Dir.Stage(s.Name))
	if err != nil {
		return gate.Inspection{}, err
	}
	all, err := ExpectedResources(r.Cluster.Dir.Stage(s.Name), st)
	if err != nil {
		return gate.Inspection{}, err
	}
	return preflight.Inspect(ctx, all, r.Notice)
}

// ExpectedResources lists the resources that a stage's preflights may find. They are in its state, in the
// intent of an interrupted run, or held by a destroy that has not verified all of them.
func ExpectedResources(dir *state.Stage, st *state.State) ([]gate.Known, error) {
	ids, err := cluster.MachineIDs(dir).Value()
	if err != nil {
		return nil, err
	}
	intent, err := dir.Intent().Read()
	if err != nil {
		return nil, err
	}
	held, err := cluster.Held(dir).Value()
	if err != nil {
		return nil, err
	}
	for _, c := range intent.InFlight(st.Has) {
		held = append(held, c.Address)
	}
	all := cluster.Known(st, ids...)
	for _, address := range held {
		if !slices.ContainsFunc(all, func(k gate.Known) bool { return k.Address == address }) {
			all = append(all, gate.Known{Address: address})
		}
	}
	return all, nil
}
