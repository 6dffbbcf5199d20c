package create

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// agree asks before a plan replaces or destroys anything. Not asked for is what
// finishes something else: what a run that was cut short has made by half or put
// aside, and what that run was told to replace already.
func (r *creation) confirmLosses(ctx context.Context, s *config.Stage, work *run.Workspace, plan *terraform.Plan, approved *approval) error {
	if approved != nil {
		return r.checkReviewed(ctx, approved, work, plan)
	}
	if r.confirm == nil {
		return nil
	}
	dir := r.run.Cluster.Dir.Stage(s.Name)
	intent, err := dir.Intent().Read()
	if err != nil {
		return err
	}
	st, err := r.run.ReadState(dir)
	if err != nil {
		return err
	}
	lost := review.Losses(plan.Changes, st, intent)
	if len(lost) == 0 {
		return nil
	}
	names, err := plan.ChangedAttributes(ctx)
	if err != nil {
		return err
	}
	loss := review.Loss{Stage: s.Name, Layer: s.Layer}
	loss.Changes, _ = review.Summarize(lost, names, nil)
	for i := range loss.Changes {
		loss.Changes[i].Address = r.run.Cluster.Masker.Hide(loss.Changes[i].Address)
	}
	r.asking.Lock() // one question at a time
	defer r.asking.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if yes, err := r.confirm(ctx, loss); err != nil || yes {
		return err
	}
	return &review.UnagreedError{Loss: loss}
}
