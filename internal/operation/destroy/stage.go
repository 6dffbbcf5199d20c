package destroy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// inClusterBound ends a deletion inside a cluster: a namespace may hang in Terminating for ever.
const inClusterBound = 15 * time.Minute

// stageDestruction is the destruction of one stage.
type stageDestruction struct {
	whole *destruction
	run   *run.Run
	stage *Stage

	begun     bool // its start was reported
	attempted bool // Terraform began to destroy something
}

// destroyAndVerify destroys the stage, verifies that it is gone, and removes its record.
func (d *stageDestruction) destroyAndVerify(ctx context.Context) error {
	err := d.run.Retry(ctx, d.stage.Record.Name, d.stage.Record.Layer, func(again bool) error {
		return d.destroyResources(ctx, again)
	})
	switch {
	case err != nil && d.attempted:
		return d.partialFailure(ctx, err)
	case err == nil:
		err = d.verify(ctx)
	}
	if err != nil {
		return err
	}
	if d.stage.EndsWithCluster {
		d.whole.mu.Lock()
		defer d.whole.mu.Unlock()
		d.whole.deferred = append(d.whole.deferred, d.stage)
		return nil
	}
	if d.stage.Record.EndsCluster {
		// Before the platform's own record goes: a run killed in between finds
		// it again and knows that the rest needs no cluster any more.
		if err := d.whole.archiveDeferred(); err != nil {
			return err
		}
	}
	if err := d.stage.dir.Remove(); err != nil {
		return err
	}
	if err := d.whole.receipt.noteRemoved(d.stage, ""); err != nil {
		return err
	}
	d.whole.emit(event.StageGone, d.stage, "")
	return nil
}

// destroyResources destroys the Terraform resources of a stage: all of them, or only the survivors if the
// cluster ends anyway. It first imports objects that a killed run has not recorded. A stage without
// resources needs no Terraform.
func (d *stageDestruction) destroyResources(ctx context.Context, again bool) (err error) {
	if d.stage.denied != nil {
		return d.stage.denied
	}
	if again {
		if err := d.stage.restate(d.run); err != nil {
			return err
		}
	}
	ours, outdated, err := d.checkOwnership(ctx, d.run.Notice)
	if err != nil {
		return err
	}
	lost := d.stage.lost()
	if len(d.stage.targets()) == 0 && len(ours) == 0 && len(lost) == 0 {
		return d.verifyAdopted(ctx, nil)
	}
	if !d.begun {
		d.begun = true
		d.whole.emit(event.StageStarted, d.stage, "")
	}
	if err := d.checkBlocked(ctx); err != nil {
		return err
	}
	release, err := d.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	work, err := d.whole.ahead.workspace(ctx, d.stage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	dir := d.stage.dir
	if err := errors.Join(dir.Fingerprint().Clear(), dir.Snapshot(), d.stage.saveHeld()); err != nil {
		return err
	}
	if err := work.Untrack(ctx, outdated); err != nil {
		return err
	}
	for _, one := range ours {
		if err := work.Import(ctx, one); err != nil {
			return err
		}
	}
	if err := d.importInterrupted(ctx, work, lost); err != nil {
		return err
	}
	if err := d.keepFiles(ctx, work); err != nil {
		return err
	}
	if err := d.saveOwned(ctx); err != nil {
		return err
	}
	if err := d.revoke(ctx); err != nil {
		return err
	}
	return d.terraform(ctx, work)
}

// restate reads the stage's state again.
func (s *Stage) restate(r *run.Run) error {
	st, err := r.ReadState(s.dir)
	if err != nil {
		return err
	}
	return s.setState(st)
}

// importInterrupted imports the objects that an interrupted run was making, so that they are destroyed too.
func (d *stageDestruction) importInterrupted(ctx context.Context, work *run.Workspace,
	lost []state.Intended) error {
	providers := d.stage.Record.InCluster
	isInCluster := func(c state.Intended) bool { return recovery.IsInCluster(c.Type, providers) }
	if slices.ContainsFunc(lost, isInCluster) {
		if err := d.whole.reachable(ctx); err != nil {
			return err
		}
	}
	target, err := d.run.Cluster.RecordedTarget()
	if err != nil {
		return err
	}
	o := recovery.Lookup{
		Cluster: target, InCluster: providers,
		Datacenter: func() (platform.Datacenter, error) { return d.whole.datacenter(d.stage) },
	}
	if err := recovery.Import(ctx, work, lost, o); err != nil {
		return err
	}
	return d.stage.restate(d.run)
}

// terraform destroys the resources in the stage's state.
func (d *stageDestruction) terraform(ctx context.Context, work *run.Workspace) error {
	targets := d.stage.targets()
	if len(targets) == 0 {
		return d.verifyAdopted(ctx, nil)
	}
	options := terraform.PlanOptions{Destroy: true}
	switch {
	case d.stage.EndsWithCluster:
		options.Targets = targets
	case d.stage.hasInCluster():
		if err := d.whole.reachable(ctx); err != nil {
			return err
		}
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, inClusterBound, fmt.Errorf("the cluster did not finish "+
			"deleting within %s; if it is gone, %s", inClusterBound, d.whole.endClusterHint()))
		defer stop()
	}
	err := d.run.Step(d.stage.Record.Name, d.stage.Record.Layer, "destroy", func() error {
		plan, err := work.Root.Plan(ctx, options)
		if err != nil {
			return err
		}
		if _, _, err = d.checkOwnership(ctx, func(string) {}); err != nil { // the plan took a while
			return errors.Join(err, plan.Discard())
		}
		guard, err := d.guard()
		if err != nil {
			return errors.Join(err, plan.Discard())
		}
		unfinished, err := recovery.Unfinished(d.stage.dir, d.stage.state)
		if err != nil {
			return errors.Join(err, plan.Discard())
		}
		var intended []state.Intended
		for _, c := range plan.Changes {
			one := state.Intended{Address: c.Address, Type: c.Type, Action: c.Action}
			if slices.Contains(unfinished, c.Address) { // and stays so if this run is killed, too
				one.Phase = state.Unsure
			}
			intended = append(intended, one)
		}
		d.attempted = true
		return work.Apply(ctx, plan, intended, guard)
	})
	if err == nil {
		return d.verifyAdopted(ctx, targets)
	}
	if !d.attempted && ctx.Err() == nil {
		err = fmt.Errorf("%w\n  nothing of it was destroyed; if what does not answer is gone for good, "+
			"forget what was kept there: %s ADDRESS", err, d.run.Cluster.UntrackCommand(d.stage.Record.Name))
	}
	return run.During("destroy", err)
}

// checkOwnership runs the recorded preflights. ours lists objects that are proved to be the stage's and that
// the state lacks, such as those that a killed run made; lost lists objects in the state that no longer
// belong to the stage. Foreign objects are reported and left alone. It fails if the state treats a foreign
// object as the stage's own, or if castle cannot verify an owner.
func (d *stageDestruction) checkOwnership(ctx context.Context, report func(string)) (
	ours []gate.Import, lost []string, err error) {
	var refused error
	err = d.inspectRecorded(ctx, func(preflight string, f gate.Inspection) {
		lost = append(lost, f.Lost...)
		for _, own := range f.Ours {
			if own.Borrowed {
				report(own.Import.What + " was not made by this state and stays")
				continue
			}
			ours = append(ours, own.Import)
		}
		mistaken := slices.Clone(f.Unverified)
		for _, foreign := range f.Foreign {
			switch {
			case foreign.ConflictsWith != "":
				foreign.Fixes = nil // they are for a create
				mistaken = append(mistaken, foreign)
			case foreign.Unverified:
				if foreign.Marked {
					foreign.Fixes = waiting.OtherStateFixes(d.run.Cluster)
				}
				mistaken = append(mistaken, foreign)
			default:
				report(fmt.Sprintf("%s is not this cluster's and stays", foreign.What))
			}
		}
		if len(mistaken) > 0 {
			refused = errors.Join(refused, &run.PreflightError{
				Preflight: preflight, Foreign: mistaken,
				TerraformCommand: d.run.Cluster.TerraformCommand(d.stage.Record.Name),
				UntrackCommand:   d.run.Cluster.UntrackCommand(d.stage.Record.Name),
			})
		}
	})
	return ours, lost, errors.Join(err, refused)
}

// inspectRecorded passes the name and result of each recorded preflight to see.
func (d *stageDestruction) inspectRecorded(
	ctx context.Context, see func(string, gate.Inspection),
) error {
	known, err := waiting.ExpectedResources(d.stage.dir, d.stage.state)
	if err != nil {
		return err
	}
	preflights, err := d.stage.preflights(d.run.Cluster)
	if err != nil {
		return err
	}
	for _, p := range preflights {
		findings, err := p.Inspect(ctx, known, d.run.Notice)
		if err != nil {
			return run.NoAnswer(p.Name, err)
		}
		see(p.Name, findings)
	}
	return nil
}

// guard returns the guard of the machines that Terraform deletes.
func (d *stageDestruction) guard() (*waiting.Guard, error) {
	deletes, err := waiting.ExpectedResources(d.stage.dir, d.stage.state)
	if err != nil {
		return nil, err
	}
	preflights, err := d.stage.preflights(d.run.Cluster)
	without := func(p gate.Preflight) bool { return p.Look == nil }
	return &waiting.Guard{Preflights: slices.DeleteFunc(preflights, without), Deletes: deletes}, err
}

// revoke ends the credentials that the stage's objects issued, such as Vault's leases.
func (d *stageDestruction) revoke(ctx context.Context) error {
	preflights, err := d.stage.preflights(d.run.Cluster)
	if err != nil {
		return err
	}
	for _, p := range preflights {
		if p.Revoke == nil {
			continue
		}
		err := d.run.Step(d.stage.Record.Name, d.stage.Record.Layer, "revoke", func() error {
			if err := p.Revoke(ctx, cluster.Known(d.stage.state), d.run.Notice); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// preflights returns the recorded preflights of the stage.
func (s *Stage) preflights(c *cluster.Cluster) ([]gate.Preflight, error) {
	var all []gate.Preflight
	types := cluster.PreflightTypes()
	for _, check := range s.Record.Preflights {
		i := slices.IndexFunc(types, func(t gate.PreflightType) bool { return t.Name == check.Type })
		if i < 0 {
			continue
		}
		values, err := check.Decode()
		if err != nil {
			return nil, err
		}
		p, err := types[i].New(check.Type+"."+check.Label, waiting.PreflightTarget(c), values)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
