package create

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// change plans and applies. Only a plan names the objects that a killed run may leave behind. So castle
// plans everything that could outlive its state first, which costs about a second. Keys and passwords exist
// only in the state and are applied without a saved plan.
func (a *attempt) change(ctx context.Context) error {
	first := a.approved == nil && !a.before.Exists && len(a.adopted) == 0 && len(a.pending) == 0
	if first && !outlivesState(a.stage) {
		return a.applyPlan(ctx, nil, nil)
	}
	plan, objects, err := a.plan(ctx, a.approved)
	if err == nil && len(a.pending) > 0 && !a.approved.isExact() {
		var freed bool
		if freed, err = a.removePending(ctx, objects); freed || err != nil {
			if err = errors.Join(err, plan.Discard()); err == nil {
				plan, objects, err = a.plan(ctx, nil)
			}
		}
	}
	if err != nil {
		return run.During("plan", err)
	}
	if err := a.keepAdopted(ctx, plan); err != nil {
		return errors.Join(err, plan.Discard())
	}
	switch {
	case plan.Empty && a.approved != nil && !a.before.Exists: // it still needs a state
		return errors.Join(plan.Discard(), a.applyPlan(ctx, nil, nil))
	case plan.Empty: // and the state has all that was in flight
		return errors.Join(plan.Discard(), a.work.Record(a.stage), a.dir.Intent().Clear())
	}
	err = a.keepBorrowed(ctx, plan)
	if err == nil {
		err = a.checkNodes(ctx, plan)
	}
	if err == nil {
		err = a.confirmLosses(ctx, plan)
	}
	if err == nil {
		err = a.recheck(ctx) // the plan took a while
	}
	if err == nil {
		err = a.work.Record(a.stage)
	}
	if err != nil {
		return errors.Join(err, plan.Discard())
	}
	return a.applyPlan(ctx, plan, objects)
}

func (a *attempt) applyPlan(ctx context.Context, plan *terraform.Plan, objects []terraform.Object) error {
	intended := a.intended(ctx, plan, objects)
	guard, err := guardOf(a, objects)
	if err == nil {
		err = errors.Join(recordMachineIDs(a.dir, objects), forgetBorrowed(a.dir, objects))
	}
	if err = errors.Join(err, a.creation.saved.begin(a.dir)); err != nil {
		return err
	}
	apply := func() error { return a.work.Apply(ctx, plan, intended, guard) }
	return run.During("apply", a.work.Step("apply", apply))
}

// outlivesState reports whether a stage may make something that exists outside of its state.
func outlivesState(s *config.Stage) bool {
	return len(s.Preflights) > 0 || slices.ContainsFunc(s.ResourceProviders, func(provider string) bool {
		return !recovery.InStateOnly(provider) && !cluster.InMachines(provider)
	})
}

// plan plans a stage, unless an approved plan fits as it is, and reads the import ids of the objects that
// could outlive their state.
func (a *attempt) plan(ctx context.Context, approved *approval) (
	plan *terraform.Plan, objects []terraform.Object, err error) {
	err = a.work.Step("plan", func() (err error) {
		if approved.isExact() {
			plan, err = approved.plan(a.work)
		} else {
			plan, err = a.work.Root.Plan(ctx, terraform.PlanOptions{})
		}
		if err != nil || plan.Empty || !outlivesState(a.stage) {
			return err
		}
		if objects, err = plan.Objects(ctx); err != nil {
			err = errors.Join(err, plan.Discard())
		}
		return err
	})
	return plan, objects, err
}

// checkNodes refuses a plan, a saved one included, that takes nodes out of the cluster.
func (a *attempt) checkNodes(ctx context.Context, plan *terraform.Plan) error {
	intent, err := a.dir.Intent().Read()
	if err != nil {
		return err
	}
	st, err := a.run.ReadState(a.dir)
	if err != nil {
		return err
	}
	return review.CheckNodes(ctx, a.run, st, intent, plan, a.creation.removesNodes)
}

// confirmLosses asks before a plan replaces or destroys anything. It does not ask about the rest of an
// interrupted run: partly created objects, and replacements that were confirmed before.
func (a *attempt) confirmLosses(ctx context.Context, plan *terraform.Plan) error {
	c := a.creation
	if a.approved != nil {
		return c.saved.check(ctx, a, plan, c.confirm == nil)
	}
	if c.confirm == nil {
		return nil
	}
	intent, err := a.dir.Intent().Read()
	if err != nil {
		return err
	}
	st, err := a.run.ReadState(a.dir)
	if err != nil {
		return err
	}
	loss := review.Loss{Stage: a.stage.Name, Layer: a.stage.Layer}
	if lost := review.Losses(plan.Changes, st, intent); len(lost) > 0 {
		if loss.Changes, _, err = review.Summarize(ctx, plan, lost, nil); err != nil {
			return err
		}
	}
	emptied, err := a.emptied(ctx, plan)
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

// emptied returns the changes of a plan that make an empty disk in the place of one that was detached before.
func (a *attempt) emptied(ctx context.Context, plan *terraform.Plan) ([]review.Change, error) {
	updates := slices.DeleteFunc(slices.Clone(plan.Changes), func(c terraform.Change) bool {
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
	all, _, err := review.Summarize(ctx, plan, updates, nil)
	review.MarkLost(all, detached)
	return slices.DeleteFunc(all, func(c review.Change) bool { return len(c.Lost) == 0 }), err
}

// intended lists the objects that a plan creates or changes, for the intent. An existing object belongs to
// somebody else, so castle looks each up first. The other changes cannot outlive the state, but a kill may
// leave them unfinished in it.
func (a *attempt) intended(ctx context.Context, plan *terraform.Plan, objects []terraform.Object,
) []state.Intended {
	var all []state.Intended
	for _, o := range objects {
		c := state.Intended{Address: o.Address, Type: o.Type, Action: o.Action, ID: o.ID}
		if o.ID != "" && o.Action != "update" && !cluster.Platforms().IsMachine(o.Type) {
			c.Before = a.existedBefore(ctx, o)
		}
		all = append(all, c)
	}
	if plan == nil { // it is planned when it is applied
		return all
	}
	for _, c := range plan.Changes {
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
	datacenter := func() (platform.Datacenter, error) {
		for _, p := range a.stage.Preflights {
			of := cluster.Platforms().Of(p.Type.Name)
			if of == nil {
				continue
			}
			values, diags := p.Values(a.stage, a.run.Outputs.Scope(a.stage))
			if diags.HasErrors() {
				return nil, diags
			}
			account, _, err := of.Account(values)
			if err != nil {
				return nil, err
			}
			return of.Open(account)
		}
		return nil, recovery.ErrNoLookup
	}
	return recovery.Lookup{
		Cluster: a.run.Outputs.Target(), InCluster: a.stage.InCluster, Datacenter: datacenter,
	}
}

// A killed Helm leaves its release pending, and every later Helm refuses to touch a pending release. Removing
// the pending revision is safe here:
//
//   - No Helm of castle works on it: this run holds the cluster's lock and has ended the survivors of the
//     last run. A revision that changes during the plan belongs to a running Helm, and castle keeps it.
//   - It is this stage's own: its plan writes a release of this name and namespace. castle keeps all others:
//     Flux may be installing them.
//   - Nothing is lost: the objects carry Helm's annotations with the release's name, so the next install
//     adopts them. After an upgrade the previous revision is left.

const helmProvider = "registry.terraform.io/hashicorp/helm"

// pendingReleases lists the cluster's pending Helm releases for a stage that uses Helm. If the API does not
// answer, the stage goes on: Helm then reports the releases that it refuses.
func (a *attempt) pendingReleases(ctx context.Context) []kube.PendingRelease {
	if !slices.Contains(a.stage.InCluster, helmProvider) {
		return nil
	}
	pending, err := kube.PendingReleases(ctx, a.run.Outputs.Target())
	if err != nil && ctx.Err() == nil {
		a.run.Notice(fmt.Sprintf("%s: cannot look for unfinished releases: %v", a.stage.Name, err))
	}
	return pending
}

func isRelease(p kube.PendingRelease, typ, id string) bool {
	return typ == "helm_release" && id == p.Namespace+"/"+p.Name
}

// removePending removes the pending releases among the objects that the plan writes, and reports whether
// there were any.
func (a *attempt) removePending(ctx context.Context, objects []terraform.Object) (freed bool, err error) {
	verbs := map[string]string{
		"pending-install": "installed", "pending-upgrade": "upgraded", "pending-rollback": "rolled back",
	}
	for _, p := range a.pending {
		planned := func(o terraform.Object) bool { return isRelease(p, o.Type, o.ID) }
		if !slices.ContainsFunc(objects, planned) {
			continue
		}
		removed, err := kube.RemovePendingRelease(ctx, a.run.Outputs.Target(), p)
		if err != nil {
			return freed, fmt.Errorf("release %s/%s: remove its unfinished revision: %w",
				p.Namespace, p.Name, err)
		}
		if removed {
			freed = true
			a.run.Notice(fmt.Sprintf("release %s/%s was being %s by a run that was killed; "+
				"its unfinished revision is removed", p.Namespace, p.Name, verbs[p.Status]))
		}
	}
	return freed, nil
}
