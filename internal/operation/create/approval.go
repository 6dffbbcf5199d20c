package create

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/planfile"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
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

// approve finds out what the reviewed plan says of a stage, whose work directory is
// ready; nil if the run follows none.
func (r *creation) approve(s *config.Stage, before *state.State) (*approval, error) {
	if r.saved == nil {
		return nil, nil
	}
	a := &approval{stage: r.saved.Plan.Stage(s.Name), before: before}
	if a.stage == nil { // a volatile one that is read again
		a.stage = &planfile.Stage{Name: s.Name, State: review.UpToDate}
	}
	if a.stage.Saved == nil && a.stage.State != review.Unchanged {
		return a, nil
	}
	now, err := review.Facts(r.run, s, true)
	if err != nil {
		return nil, err
	}
	begun, err := r.begun(s)
	if err != nil {
		return nil, err
	}
	a.exact = len(now.Changed(a.stage.Facts)) == 0
	if differs := review.Differing(now, a.stage.Facts, begun, false); len(differs) > 0 && a.stage.Saved != nil {
		return nil, r.stale(strings.Join(differs, ", "))
	}
	return a, nil
}

// plan returns the stage's saved plan.
func (a *approval) plan(work *run.Workspace) (*terraform.Plan, error) {
	var changes []terraform.Change
	for _, c := range a.stage.Changes {
		changes = append(changes, terraform.Change{Address: c.Address, Action: c.Action, Phase: terraform.Planned})
	}
	return work.Root.Restore(a.stage.Saved, changes)
}

// unadopted makes sure that there is nothing to be adopted, which the saved plan
// would make anew, and that nothing else was imported before it.
func (r *creation) checkNothingToAdopt(ctx context.Context, s *config.Stage, approved *approval, st *state.State) error {
	if !approved.isExact() {
		return nil
	}
	if st.SHA256 != approved.before.SHA256 {
		return r.stale("something of it was imported first")
	}
	for _, a := range s.Adopts {
		if cluster.HasResource(st, a.Address) || a.Exists == nil {
			continue
		}
		if id, diags := a.ID(s, r.run.Outputs.Scope(s)); diags.HasErrors() || id == "" {
			continue
		}
		there, err := exists(ctx, r.run, s, a, st)
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
func (r *creation) checkReviewed(ctx context.Context, a *approval, work *run.Workspace, plan *terraform.Plan) error {
	if a.exact {
		return nil
	}
	r.saved.Mu.Lock()
	allowed, again := r.saved.Allowed[a.stage.Name]
	r.saved.Mu.Unlock()
	if !again {
		allowed = a.stage.Changes
	}
	unplanned := !again && !review.IsPlanned(a.stage.State)
	if unplanned && r.confirm == nil { // --yes
		return nil
	}
	more := slices.DeleteFunc(slices.Clone(plan.Changes), func(c terraform.Change) bool {
		if unplanned {
			return review.OnlyCreates(c, !a.before.Has(c.Address))
		}
		return review.IsRemaining(c, allowed)
	})
	if len(more) == 0 {
		r.saved.Mu.Lock()
		defer r.saved.Mu.Unlock()
		if unplanned {
			r.saved.Allowed[a.stage.Name] = review.ChangesOf(plan)
		}
		return nil
	}
	names, err := plan.ChangedAttributes(ctx)
	if err != nil {
		return err
	}
	e := &review.UnreviewedError{File: r.saved.Path, Way: "plan again and have that reviewed: " + r.planAgain()}
	if unplanned {
		e.Way += "; or do it all the same: --yes"
	}
	e.Changes, _ = review.Summarize(more, names, nil)
	return e
}
