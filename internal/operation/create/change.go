package create

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// makePlan plans the stage. Only a plan names the objects that a killed run may leave behind. So castle plans
// everything that could outlive its state first, which costs about a second. Keys and passwords exist only in
// the state and are applied without a saved plan.
func (a *attempt) makePlan(ctx context.Context) error {
	a.changes = true
	st, err := a.run.ReadState(a.dir)
	if err == nil {
		a.outdated, err = applied.Outdated(a.run, a.stage, st)
		a.outdated = a.creation.machine.own(a.outdated)
	}
	if err != nil {
		return err
	}
	first := a.approved == nil && !a.before.Exists && len(a.adopted) == 0 && len(a.pending) == 0
	if a.planless = first && !outlivesState(a.stage); a.planless {
		return nil
	}
	return run.During("plan", a.planOnce(ctx))
}

// outlivesState reports whether a stage may make something that exists outside of its state.
func outlivesState(s *config.Stage) bool {
	return len(s.Preflights) > 0 || slices.ContainsFunc(s.ResourceProviders, func(provider string) bool {
		return !recovery.InStateOnly(provider) && !cluster.InMachines(provider)
	})
}

// planOnce plans a stage, unless an approved plan fits as it is, and reads the import ids of the objects that
// could outlive their state.
func (a *attempt) planOnce(ctx context.Context) error {
	return a.work.Step("plan", func() (err error) {
		var plan *terraform.Plan
		if a.approved.isExact() {
			plan, err = a.work.Root.Restore(a.approved.stage.Saved, a.approved.changes)
		} else {
			plan, err = a.work.Root.Plan(ctx, a.planOptions())
		}
		if err != nil {
			return err
		}
		a.plan, a.objects = plan, nil
		if !plan.Empty && outlivesState(a.stage) {
			if a.objects, err = plan.Objects(ctx); err != nil {
				err = errors.Join(err, a.discard())
			}
		}
		return err
	})
}

func (a *attempt) planOptions() terraform.PlanOptions {
	if m := a.creation.machine; m != nil {
		return terraform.PlanOptions{Targets: m.Addresses, Replace: slices.Concat(m.Replace, a.outdated)}
	}
	return terraform.PlanOptions{Replace: slices.Concat(a.creation.issuers[a.stage.Name], a.outdated)}
}

// discard deletes the plan, if there is one.
func (a *attempt) discard() error {
	if a.plan == nil {
		return nil
	}
	plan := a.plan
	a.plan, a.objects = nil, nil
	return plan.Discard()
}

// endEmpty ends a plan that changes nothing: the state has all that was in flight, but a new stage needs one.
func (a *attempt) endEmpty(ctx context.Context) error {
	if !a.plan.Empty {
		return nil
	}
	if a.planless = a.approved != nil && !a.before.Exists; a.planless {
		return a.discard()
	}
	return errors.Join(a.discard(), a.recordPlanned(ctx), a.dir.Intent().Clear())
}

func (a *attempt) recordPlanned(context.Context) error { return applied.Record(a.work, a.stage) }

// apply applies the plan, or without one the configuration.
func (a *attempt) apply(ctx context.Context) error {
	intended := a.intended(ctx)
	guard, err := a.guard()
	if err == nil {
		err = errors.Join(recordMachineIDs(a.dir, a.objects, a.run.ID), forgetBorrowed(a.dir, a.objects))
	}
	if err = errors.Join(err, a.creation.saved.begin(a.dir)); err != nil {
		return err
	}
	return run.During("apply", a.work.Step("apply", func() error {
		plan := a.plan
		a.plan = nil // Apply deletes it
		return a.work.Apply(ctx, plan, intended, guard)
	}))
}

// checkMachines refuses a plan, a saved one included, that takes nodes out of the cluster or harms machines
// which run. It reports what waits for their restart.
func (a *attempt) checkMachines(ctx context.Context) error {
	intent, err := a.dir.Intent().Read()
	st, unread := a.run.ReadState(a.dir)
	if err = cmp.Or(err, unread); err != nil {
		return err
	}
	if m := a.creation.machine; m != nil {
		return m.check(ctx, a, st, intent)
	}
	if err := a.checkEtcd(ctx, st); err != nil {
		return err
	}
	if a.creation.issuers != nil {
		return a.checkRenewal(ctx, st, intent)
	}
	pending, err := review.CheckMachines(ctx, a.run, st, intent, a.plan, a.outdated)
	for _, m := range pending {
		a.run.Notice(fmt.Sprintf("%s: %s; %s makes it", a.stage.Name, m, a.run.Cluster.Command("rollout")))
	}
	return err
}

// checkRenewal refuses a plan that makes or ends more than resources of credentials, or that machines notice.
func (a *attempt) checkRenewal(ctx context.Context, before *state.State, intent *state.Intent) error {
	e := &run.RefusedError{Refused: "the plan would do more than renew credentials, and was not applied",
		Fix: "apply other changes first: " + a.run.Cluster.Command("create")}
	for _, c := range a.plan.Changes {
		// A run that was killed may have deleted it.
		renews := (c.Action == "replace" || c.Action == "create") &&
			slices.Contains(a.creation.issuers[a.stage.Name], c.Address)
		if !renews && c.Action != "update" && c.Action != "read" {
			e.Reasons = append(e.Reasons, fmt.Sprintf("%s: %s %s", a.stage.Name, c.Action, c.Address))
		}
	}
	machines, err := review.Effects(ctx, a.run, before, intent, a.plan, a.outdated)
	for _, m := range machines {
		if len(m.Effects) > 0 {
			e.Reasons = append(e.Reasons, a.stage.Name+": "+m.String())
		}
	}
	if err != nil || len(e.Reasons) == 0 {
		return err
	}
	return e
}

// confirmLosses asks before a plan replaces or destroys anything. It does not ask about the rest of an
// interrupted run: partly created objects, and replacements that were confirmed before.
func (a *attempt) confirmLosses(ctx context.Context) error {
	c := a.creation
	if a.approved != nil {
		return c.saved.check(ctx, a, c.confirm == nil)
	}
	if c.confirm == nil {
		return nil
	}
	intent, err := a.dir.Intent().Read()
	st, unread := a.run.ReadState(a.dir)
	if err = cmp.Or(err, unread); err != nil {
		return err
	}
	loss := review.Loss{Stage: a.stage.Name, Layer: a.stage.Layer}
	lost := review.Losses(a.plan.Changes, st, intent)
	lost = slices.DeleteFunc(lost, func(c terraform.Change) bool { // what it had configured is gone
		return slices.Contains(a.outdated, c.Address)
	})
	if len(lost) > 0 {
		if loss.Changes, _, err = review.Summarize(ctx, a.plan, lost, nil); err != nil {
			return err
		}
		review.NameMachines(loss.Changes, st)
	}
	emptied, err := a.emptied(ctx)
	if loss.Changes = append(loss.Changes, emptied...); err != nil || len(loss.Changes) == 0 {
		return err
	}
	for i := range loss.Changes {
		loss.Changes[i].Mask(a.run.Cluster.Masker.Hide)
	}
	c.asking.Lock() // one question at a time
	defer c.asking.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if yes, err := c.confirm(ctx, loss); err != nil || yes {
		return err
	}
	return &review.UnagreedError{Loss: loss}
}

// emptied returns the planned changes that make an empty disk in the place of one that was detached before.
func (a *attempt) emptied(ctx context.Context) ([]review.Change, error) {
	updates := slices.DeleteFunc(slices.Clone(a.plan.Changes), func(c terraform.Change) bool {
		return c.Action != "update" || !cluster.Platforms().IsMachine(c.Type)
	})
	if len(updates) == 0 {
		return nil, nil
	}
	var detached []gate.Detached
	err := a.inspect(ctx, func(found gate.Inspection) error {
		detached = append(detached, found.Detached...)
		return nil
	})
	if err != nil || len(detached) == 0 {
		return nil, err
	}
	all, _, err := review.Summarize(ctx, a.plan, updates, nil)
	review.MarkLost(all, detached)
	return slices.DeleteFunc(all, func(c review.Change) bool { return len(c.Lost) == 0 }), err
}

// intended lists the objects that the plan creates or changes, for the intent. An existing object belongs to
// somebody else, so castle looks each up first. The other changes cannot outlive the state, but a kill may
// leave them unfinished in it.
func (a *attempt) intended(ctx context.Context) (all []state.Intended) {
	for _, o := range a.objects {
		c := state.Intended{Address: o.Address, Type: o.Type, Action: o.Action, ID: o.ID}
		if o.ID != "" && o.Action != "update" && !cluster.Platforms().IsMachine(o.Type) {
			c.Before = a.existedBefore(ctx, o)
		}
		all = append(all, c)
	}
	if a.plan == nil { // it is planned when it is applied
		return all
	}
	for _, c := range a.plan.Changes {
		isListed := func(i state.Intended) bool { return i.Address == c.Address }
		if slices.Contains([]string{"create", "replace", "delete"}, c.Action) &&
			!slices.ContainsFunc(all, isListed) {
			all = append(all, state.Intended{Address: c.Address, Type: c.Type, Action: c.Action})
		}
	}
	return all
}

// existedBefore looks an object up, through Terraform where castle cannot. Without an answer it returns "".
// If the run is then killed, the object counts as the stage's own only if Terraform reported its creation.
func (a *attempt) existedBefore(ctx context.Context, o terraform.Object) state.Before {
	adopted := func(adopt *config.Adopt) bool { return adopt.Address == o.Address }
	if o.ID == o.WasID || slices.ContainsFunc(a.stage.Adopts, adopted) {
		return state.Absent // its own goes first, or it is adopted wherever it comes from
	}
	yes, err := a.lookup().Has(ctx, o.Type, o.ID, func(string) {})
	if errors.Is(err, recovery.ErrNoLookup) {
		yes, err = a.work.Root.Exists(ctx, o.Address, o.ID)
	}
	switch {
	case err != nil:
		a.run.Notice(fmt.Sprintf("%s: cannot ask whether %s exists: %v", a.stage.Name, o.Address, err))
		return ""
	case yes:
		return state.Present
	}
	return state.Absent
}

// lookup finds objects in the cluster, and in the datacenter that the stage's preflights read.
func (a *attempt) lookup() recovery.Lookup {
	return recovery.Lookup{Cluster: a.run.Outputs.Target(), InCluster: a.stage.InCluster,
		Datacenter: func() (platform.Datacenter, error) { return recovery.Datacenter(a.run, a.stage) }}
}
