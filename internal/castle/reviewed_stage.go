package castle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/planfile"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// approval is what a reviewed plan allows for one stage. Where everything is as it
// was reviewed, Terraform's own saved plan is applied. Otherwise the stage is
// planned anew, and that may do no more than was reviewed:
//
//   - A stage of which nothing could be known, because earlier stages had not said
//     its inputs, may make what does not exist, and change nothing that does.
//   - One that imports something first, or that this plan has begun and not
//     finished, may do what is left of the changes that were reviewed.
//   - One that had nothing to do may do nothing.
type approval struct {
	stage  *planfile.Stage
	before *state.State // before anything was imported
	exact  bool         // its saved plan fits
}

func (a *approval) isExact() bool { return a != nil && a.exact }

// UnreviewedError says that a stage was left as it is because its plan would do
// what nobody has reviewed.
type UnreviewedError struct {
	File    string
	Changes []PlannedChange
	Way     string
}

func (e *UnreviewedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "nothing of it was changed, as %s does not hold what would be:", e.File)
	for _, c := range e.Changes {
		fmt.Fprintf(&b, "\n  %s", c)
	}
	return b.String() + "\n  " + e.Way
}

// approve finds out what the reviewed plan says of a stage, whose work directory is
// ready; nil if the run follows none.
func (r *creation) approve(s *config.Stage, before *state.State) (*approval, error) {
	if r.reviewed == nil {
		return nil, nil
	}
	a := &approval{stage: r.reviewed.Stage(s.Name), before: before}
	if a.stage == nil { // a volatile one that is read again
		a.stage = &planfile.Stage{Name: s.Name, State: PlanCurrent}
	}
	if a.stage.Saved == nil && a.stage.State != PlanUnchanged {
		return a, nil
	}
	now, err := r.facts(s, true)
	if err != nil {
		return nil, err
	}
	begun, err := r.begun(s)
	if err != nil {
		return nil, err
	}
	a.exact = len(now.Changed(a.stage.Facts)) == 0
	if differs := differing(now, a.stage.Facts, begun, false); len(differs) > 0 && a.stage.Saved != nil {
		return nil, r.stale(strings.Join(differs, ", "))
	}
	return a, nil
}

// plan returns the stage's saved plan.
func (a *approval) plan(work *workshop) (*terraform.Plan, error) {
	var changes []terraform.Change
	for _, c := range a.stage.Changes {
		changes = append(changes, terraform.Change{Address: c.Address, Action: c.Action, Phase: terraform.Planned})
	}
	return work.root.Restore(a.stage.Saved, changes)
}

// unadopted makes sure that there is nothing to be adopted, which the saved plan
// would make anew, and that nothing else was imported before it.
func (r *creation) unadopted(ctx context.Context, s *config.Stage, approved *approval, st *state.State) error {
	if !approved.isExact() {
		return nil
	}
	if st.SHA256 != approved.before.SHA256 {
		return r.stale("something of it was imported first")
	}
	for _, a := range s.Adopts {
		if has(st, a.Address) || a.Exists == nil {
			continue
		}
		if id, diags := a.ID(s, r.said.scope(s)); diags.HasErrors() || id == "" {
			continue
		}
		there, err := r.exists(ctx, s, a, st)
		if err != nil {
			return fmt.Errorf("adopt %s: %w", a.Address, err)
		}
		if there {
			return r.stale(a.Address + ": it exists by now, and is to be adopted")
		}
	}
	return nil
}

// within refuses a plan that was made in this run and does more than was reviewed.
func (r *creation) within(ctx context.Context, a *approval, work *workshop, plan *terraform.Plan) error {
	if a.exact {
		return nil
	}
	r.reviewed.mu.Lock()
	allowed, again := r.reviewed.allowed[a.stage.Name]
	r.reviewed.mu.Unlock()
	if !again {
		allowed = a.stage.Changes
	}
	unplanned := !again && !isPlanned(a.stage.State)
	if unplanned && r.agreed == nil { // --yes
		return nil
	}
	more := slices.DeleteFunc(slices.Clone(plan.Changes), func(c terraform.Change) bool {
		if unplanned {
			return onlyMakes(c, !a.before.Has(c.Address))
		}
		return isLeft(c, allowed)
	})
	if len(more) == 0 {
		r.reviewed.mu.Lock()
		defer r.reviewed.mu.Unlock()
		if unplanned {
			r.reviewed.allowed[a.stage.Name] = changesOf(plan)
		}
		return nil
	}
	names, err := plan.ChangedAttributes(ctx)
	if err != nil {
		return err
	}
	e := &UnreviewedError{File: r.reviewed.path, Way: "plan again and have that reviewed: " + r.planAgain()}
	if unplanned {
		e.Way += "; or do it all the same: --yes"
	}
	e.Changes, _ = planned(more, names, nil)
	return e
}

func changesOf(plan *terraform.Plan) (all []planfile.Change) {
	for _, c := range plan.Changes {
		all = append(all, planfile.Change{Address: c.Address, Action: c.Action})
	}
	return all
}

// onlyMakes reports whether a change leaves what exists as it is. What was imported
// just now was not the stage's before, and what was made by half is no loss.
func onlyMakes(c terraform.Change, imported bool) bool {
	switch c.Action {
	case "create", "read", "import":
		return true
	case "update":
		return imported
	}
	return c.Reason == "tainted"
}

// isLeft reports whether a change is what is left to do of those that were reviewed.
func isLeft(c terraform.Change, reviewed []planfile.Change) bool {
	leaves := map[string][]string{
		"create": {"create", "import", "update"}, "adopt": {"create", "import", "update"},
		"replace": {"replace", "create", "update", "delete"},
	}
	return c.Action == "read" || slices.ContainsFunc(reviewed, func(was planfile.Change) bool {
		return was.Address == c.Address && (was.Action == c.Action || c.Reason == "tainted" || slices.Contains(leaves[was.Action], c.Action))
	})
}
