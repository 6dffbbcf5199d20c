package castle

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// terraform asks Terraform for its plan, of which only names are kept.
func (p *planning) terraform(ctx context.Context, s *config.Stage, inputs map[string]cty.Value, adopted []string, one *plannedStage) (err error) {
	release, err := p.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	work, err := p.open(s.Name, s.Layer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	override := p.override(s)
	override.Inputs = inputs
	if err := work.root.Materialise(s.Module, override); err != nil {
		return err
	}
	if err := work.root.Init(ctx); err != nil {
		return err
	}
	var plan *terraform.Plan
	err = p.step(s.Name, s.Layer, "plan", func() (err error) {
		plan, err = work.root.Plan(ctx, terraform.PlanOptions{})
		return err
	})
	if err != nil {
		return during("plan", err)
	}
	defer func() { err = errors.Join(err, plan.Discard()) }()
	if plan.Empty {
		one.State = PlanUnchanged
		return nil
	}
	one.State = PlanChanges
	if err := p.hear(ctx, s, work, plan, one); err != nil {
		return err
	}
	if p.keeps && !one.imports {
		if one.saved, err = os.ReadFile(plan.File); err != nil {
			return err
		}
	}
	var names map[string][]string
	if slices.ContainsFunc(plan.Changes, func(c terraform.Change) bool { return c.Action == "update" || c.Action == "replace" }) {
		if names, err = plan.ChangedAttributes(ctx); err != nil {
			return err
		}
	}
	one.Changes, one.Counts = planned(plan.Changes, names, adopted)
	return nil
}

// hear takes what a stage would say that was never applied and only reads, as when
// the cluster's secrets have moved: the others are planned with that.
func (p *planning) hear(ctx context.Context, s *config.Stage, work *workshop, plan *terraform.Plan, one *plannedStage) error {
	st, err := p.readState(p.dir.Stage(s.Name))
	if err != nil || st.Exists || !s.Volatile || len(plan.Changes) > 0 {
		return err
	}
	values, known, err := plan.Outputs(ctx)
	if err != nil || !known {
		return err
	}
	said := map[string]state.Output{}
	for name, v := range values {
		said[name] = state.Output{Value: v}
	}
	p.said.put(s, withNulls(s, said))
	one.heard = true
	return nil
}

func planned(changes []terraform.Change, names map[string][]string, adopted []string) (all []PlannedChange, counts map[string]int) {
	counts = map[string]int{}
	for _, c := range changes {
		one := PlannedChange{Address: c.Address, Action: c.Action, Reason: c.Reason, Attributes: names[c.Address]}
		if c.Action == "create" && slices.Contains(adopted, c.Address) {
			one.Action = "adopt"
		}
		counts[one.Action]++
		all = append(all, one)
	}
	// Terraform's own order is another one each time.
	slices.SortStableFunc(all, func(a, b PlannedChange) int { return strings.Compare(a.Address, b.Address) })
	return all, counts
}
