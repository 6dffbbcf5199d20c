package create

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Machine is the part of a stage that stands for one machine, and what somebody has agreed to.
type Machine struct {
	Name      string   // the key of its resources
	Addresses []string // of its resources: the others are not planned
	Replace   []string // those of them that are made anew
	Leaves    bool     // its resources may be deleted
	Confirmed []effect.Effect
}

// Change plans and applies the resources of one machine in a stage, with the steps of any create. It changes
// nothing and returns a *review.ExceedsError if the plan would touch another machine or do more than was
// confirmed. It waits for no gate.
func Change(ctx context.Context, r *run.Run, s *config.Stage, m Machine) error {
	c := newCreation(r, Options{})
	c.machine = &m
	return c.applyOnce(ctx, s, nil)
}

// Back applies a stage with other inputs than those of the configuration, and waits for its gates. Nothing
// marks it as up to date: the next create applies the configuration again.
func Back(ctx context.Context, r *run.Run, s *config.Stage, inputs map[string]cty.Value, o Options) error {
	if err := newCreation(r, o).applyOnce(ctx, s, inputs); err != nil {
		return err
	}
	return waiting.ForGates(ctx, r, s, s.Gates)
}

// applyOnce makes a stage's apply alone. nil inputs are those of the configuration.
func (c *creation) applyOnce(ctx context.Context, s *config.Stage, inputs map[string]cty.Value) (err error) {
	work, err := c.workspace(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	work.Silent = c.machine != nil // a provider asks for the restart that the rollout makes
	err = c.run.Retry(ctx, s.Name, s.Layer, func(bool) error {
		defer work.Root.StopProviders()
		a := &attempt{creation: c, run: c.run, stage: s, work: work, inputs: inputs,
			dir: c.run.Cluster.Dir.Stage(s.Name)}
		return a.try(ctx)
	})
	if err != nil {
		return err
	}
	return c.run.ReadOutputs(s)
}

// has reports whether an address is the machine's; without a machine, all are.
func (m *Machine) has(address string) bool { return m == nil || slices.Contains(m.Addresses, address) }

// own returns the addresses that are the machine's.
func (m *Machine) own(addresses []string) []string {
	return slices.DeleteFunc(addresses, func(address string) bool { return !m.has(address) })
}

// check compares the plan with what was confirmed. What the machine's resources need comes with them into the
// plan, and may be made or changed if it belongs to no machine.
func (m *Machine) check(ctx context.Context, a *attempt, before *state.State, intent *state.Intent) error {
	e := &review.ExceedsError{Machine: m.Name, Again: a.run.Cluster.Command("rollout")}
	for _, c := range a.plan.Changes {
		name, keyed := terraform.KeyOf(c.Address)
		begun := c.Reason == "tainted" || intent.Replaces(c.Address)
		// What hangs on the machine alone, such as its high availability, is made anew with it.
		hangs := len(m.Replace) > 0 && !cluster.Platforms().IsMachine(c.Type)
		remakes := begun || hangs || slices.Contains(m.Replace, c.Address) ||
			slices.Contains(a.outdated, c.Address)
		switch {
		case c.Type == cluster.Schematic: // it only leaves the state
		case keyed && name != m.Name,
			c.Action == "delete" && !(keyed && m.Leaves),
			c.Action == "replace" && !(keyed && remakes):
			e.Changes = append(e.Changes, fmt.Sprintf("%s %s", c.Action, c.Address))
		}
	}
	effects, err := review.Effects(ctx, a.run, before, intent, a.plan, a.outdated)
	if err != nil {
		return err
	}
	for _, machine := range effects {
		for _, one := range effect.Harmful(machine.Effects) {
			same := func(o effect.Effect) bool { return o.Kind == one.Kind && o.Text == one.Text }
			if len(m.Replace) == 0 && !slices.ContainsFunc(m.Confirmed, same) {
				e.Changes = append(e.Changes, machine.Name+" "+one.Kind.Fate()+": "+one.Text)
			}
		}
	}
	if len(e.Changes) == 0 {
		return nil
	}
	return e
}
