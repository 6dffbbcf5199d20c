package plan

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// terraform plans the stage with Terraform and keeps the names of the changes.
func (p *planning) terraform(ctx context.Context, s *config.Stage, inputs map[string]cty.Value,
	adopted []string, one *plannedStage) (err error) {
	release, err := p.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	work, err := p.run.OpenWorkspace(s.Name, s.Layer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := work.Prepare(ctx, s, inputs); err != nil {
		return err
	}
	var plan *terraform.Plan
	err = p.run.Step(s.Name, s.Layer, "plan", func() (err error) {
		plan, err = work.Root.Plan(ctx, terraform.PlanOptions{})
		return err
	})
	if err != nil {
		return run.During("plan", err)
	}
	defer func() { err = errors.Join(err, plan.Discard()) }()
	if plan.Empty {
		one.plan.State = review.Unchanged
		return nil
	}
	one.plan.State = review.Changes
	if err := p.readOutputs(ctx, s, work, plan, one); err != nil {
		return err
	}
	if p.keeps && !one.imports {
		if one.saved, err = os.ReadFile(plan.File); err != nil {
			return err
		}
	}
	var names map[string][]string
	if slices.ContainsFunc(plan.Changes,
		func(c terraform.Change) bool { return c.Action == "update" || c.Action == "replace" }) {
		if names, err = plan.ChangedAttributes(ctx); err != nil {
			return err
		}
	}
	one.plan.Changes, one.plan.Counts = review.Summarize(plan.Changes, names, adopted)
	return nil
}

// readOutputs keeps the planned outputs of a stage that only reads and was never applied, so that other
// stages plan with them.
func (p *planning) readOutputs(ctx context.Context, s *config.Stage, work *run.Workspace,
	plan *terraform.Plan, one *plannedStage) error {
	st, err := p.run.ReadState(p.run.Cluster.Dir.Stage(s.Name))
	if err != nil || st.Exists || !s.Volatile || len(plan.Changes) > 0 {
		return err
	}
	values, known, err := plan.Outputs(ctx)
	if err != nil || !known {
		return err
	}
	outputs := map[string]state.Output{}
	for name, v := range values {
		outputs[name] = state.Output{Value: v}
	}
	p.run.Outputs.Set(s, run.WithNulls(s, outputs))
	one.plan.outputsRead = true
	return nil
}
