package create

import (
	"context"
	"errors"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// change plans and applies. Only the plan says by which names the things are to be
// found that the run may be killed over, so that there is one of everything that
// could outlive its state. It costs about a second of a stage's first apply (half
// of that to have the plan shown), beside 3 to 7 for the apply. What exists in the
// state alone, such as keys and passwords, cannot be lost and found: it is applied
// in one go.
func (r *creation) change(ctx context.Context, s *config.Stage, work *run.Workspace, before *state.State,
	adopted []string, pending []kube.PendingRelease, approved *approval) error {
	if approved == nil && !before.Exists && len(s.Preflights) == 0 && len(adopted) == 0 && len(pending) == 0 && !outlivesState(s) {
		return r.applyPlan(ctx, s, work, nil, nil)
	}
	plan, objects, err := r.plan(ctx, s, work, approved)
	if err == nil && len(pending) > 0 && !approved.isExact() {
		plan, objects, err = r.freeReleases(ctx, s, work, plan, objects, pending)
	}
	if err != nil {
		return run.During("plan", err)
	}
	if err := keepAdopted(ctx, r.run, s, work, plan, adopted); err != nil {
		return errors.Join(err, plan.Discard())
	}
	if plan.Empty && approved != nil && !before.Exists { // it gets its state all the same
		return errors.Join(plan.Discard(), r.applyPlan(ctx, s, work, nil, nil))
	}
	if plan.Empty { // and all that was in flight is in the state
		return errors.Join(plan.Discard(), run.RecordStage(r.run, s, work), r.run.Cluster.Dir.Stage(s.Name).Intent().Clear())
	}
	if err := r.confirmLosses(ctx, s, work, plan, approved); err != nil {
		return errors.Join(err, plan.Discard())
	}
	// The plan took a while: ask once more what stands in the way.
	if err := r.recheck(ctx, s); err != nil {
		return errors.Join(err, plan.Discard())
	}
	if err := run.RecordStage(r.run, s, work); err != nil {
		return errors.Join(err, plan.Discard())
	}
	return r.applyPlan(ctx, s, work, plan, r.intended(ctx, s, work, objects))
}

func (r *creation) applyPlan(ctx context.Context, s *config.Stage, work *run.Workspace, plan *terraform.Plan, intended []state.Intended) error {
	dir := r.run.Cluster.Dir.Stage(s.Name)
	// What is replaced now could not be told from a stranger if castle died.
	if err := errors.Join(cluster.MachineIDsNote(dir).Clear(), r.beginReviewed(dir)); err != nil {
		return err
	}
	return run.During("apply", r.run.Step(s.Name, s.Layer, "apply", func() error { return work.Apply(ctx, r.run, dir, plan, intended) }))
}

// freed removes the pending releases that a plan would write, and plans again if
// there were any.
func (r *creation) freeReleases(ctx context.Context, s *config.Stage, work *run.Workspace, plan *terraform.Plan, objects []terraform.Object,
	pending []kube.PendingRelease) (*terraform.Plan, []terraform.Object, error) {
	freed, err := r.removePending(ctx, objects, pending)
	if !freed && err == nil {
		return plan, objects, nil
	}
	if err := errors.Join(err, plan.Discard()); err != nil {
		return nil, nil, err
	}
	return r.plan(ctx, s, work, nil)
}

// outlivesState reports whether a stage may make something that exists anywhere
// but in its state: a preflight looks for nothing else.
func outlivesState(s *config.Stage) bool {
	return len(s.Preflights) > 0 || slices.ContainsFunc(s.Makers, func(provider string) bool { return !recovery.InStateOnly(provider) && !recovery.InMachines(provider) })
}

// plan plans a stage, unless a plan was approved that fits as it is, and reads what
// the objects are called that could outlive their state.
func (r *creation) plan(ctx context.Context, s *config.Stage, work *run.Workspace, approved *approval) (plan *terraform.Plan, objects []terraform.Object, err error) {
	err = r.run.Step(s.Name, s.Layer, "plan", func() (err error) {
		if approved.isExact() {
			plan, err = approved.plan(work)
		} else {
			plan, err = work.Root.Plan(ctx, terraform.PlanOptions{})
		}
		if err != nil || plan.Empty || !outlivesState(s) {
			return err
		}
		if objects, err = plan.Objects(ctx); err != nil {
			err = errors.Join(err, plan.Discard())
		}
		return err
	})
	return plan, objects, err
}
