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
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// inClusterBound ends a deletion inside a cluster: a namespace may hang in Terminating for ever.
const inClusterBound = 15 * time.Minute

// destroyAndVerify destroys the stage, verifies that it is gone, and removes its record.
func (d *destruction) destroyAndVerify(ctx context.Context, s *Stage) error {
	err := d.run.Retry(ctx, s.Record.Name, s.Record.Layer, func(again bool) error {
		return d.destroyResources(ctx, s, again)
	})
	if err != nil && s.attempted {
		return d.partialFailure(ctx, s, err)
	}
	if err != nil {
		return err
	}
	if err := d.verify(ctx, s); err != nil {
		return err
	}
	if s.EndsWithCluster {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.deferred = append(d.deferred, s)
		return nil
	}
	if s.Record.EndsCluster {
		// Before the platform's own record goes: a run killed in between finds
		// it again and knows that the rest needs no cluster any more.
		if err := d.archiveDeferred(); err != nil {
			return err
		}
	}
	if err := s.dir.Remove(); err != nil {
		return err
	}
	if err := d.receipt.noteRemoved(s, ""); err != nil {
		return err
	}
	d.emit(event.StageGone, s, "")
	return nil
}

// destroyResources destroys the Terraform resources of a stage: all of them, or only the survivors if the
// cluster ends anyway. It first imports objects that a killed run has not recorded. A stage without
// resources needs no Terraform.
func (d *destruction) destroyResources(ctx context.Context, s *Stage, again bool) (err error) {
	if s.denied != nil {
		return s.denied
	}
	if again {
		if err := s.restate(d.run); err != nil {
			return err
		}
	}
	ours, outdated, err := d.checkOwnership(ctx, s)
	if err != nil {
		return err
	}
	lost := s.lost()
	if len(s.targets()) == 0 && len(ours) == 0 && len(lost) == 0 {
		return d.verifyAdopted(ctx, s, nil)
	}
	if !s.begun {
		s.begun = true
		d.emit(event.StageStarted, s, "")
	}
	if err := d.checkBlocked(ctx, s); err != nil {
		return err
	}
	release, err := d.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	work, err := run.RecordedWorkspace(ctx, d.run, s.Record)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := errors.Join(s.dir.Fingerprint().Clear(), s.dir.Snapshot(), s.saveHeld()); err != nil {
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
	if err := d.importInterrupted(ctx, s, work, lost); err != nil {
		return err
	}
	if err := d.saveOwned(ctx, s); err != nil {
		return err
	}
	if err := d.revoke(ctx, s); err != nil {
		return err
	}
	return d.terraform(ctx, s, work)
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
func (d *destruction) importInterrupted(ctx context.Context, s *Stage, work *run.Workspace,
	lost []state.Intended) error {
	isInCluster := func(c state.Intended) bool { return recovery.IsInCluster(c.Type, s.Record.InCluster) }
	if slices.ContainsFunc(lost, isInCluster) {
		if err := d.reachable(ctx); err != nil {
			return err
		}
	}
	target, err := targetOf(d.run.Cluster)
	if err != nil {
		return err
	}
	o := recovery.Lookup{
		Cluster: target, InCluster: s.Record.InCluster,
		Datacenter: func() (*proxmox.Client, error) { return d.datacenter(s) },
	}
	if err := recovery.Import(ctx, work, lost, o); err != nil {
		return err
	}
	return s.restate(d.run)
}

// terraform destroys the resources in the stage's state.
func (d *destruction) terraform(ctx context.Context, s *Stage, work *run.Workspace) error {
	targets := s.targets()
	if len(targets) == 0 {
		return d.verifyAdopted(ctx, s, nil)
	}
	options := terraform.PlanOptions{Destroy: true}
	switch {
	case s.EndsWithCluster:
		options.Targets = targets
	case s.hasInCluster():
		if err := d.reachable(ctx); err != nil {
			return err
		}
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, inClusterBound, fmt.Errorf("the cluster did not finish "+
			"deleting within %s; if it is gone, %s", inClusterBound, d.endClusterHint()))
		defer stop()
	}
	err := d.run.Step(s.Record.Name, s.Record.Layer, "destroy", func() error {
		plan, err := work.Root.Plan(ctx, options)
		if err != nil {
			return err
		}
		var intended []state.Intended
		for _, c := range plan.Changes {
			intended = append(intended, state.Intended{Address: c.Address, Type: c.Type, Action: c.Action})
		}
		s.attempted = true
		return work.Apply(ctx, plan, intended)
	})
	if err == nil {
		return d.verifyAdopted(ctx, s, targets)
	}
	if !s.attempted && ctx.Err() == nil {
		err = fmt.Errorf("%w\n  nothing of it was destroyed; if what does not answer is gone for good, "+
			"forget what was kept there: %s ADDRESS", err, d.run.Cluster.UntrackCommand(s.Record.Name))
	}
	return run.During("destroy", err)
}

// checkOwnership runs the recorded preflights. ours lists objects that a killed run made and the state
// lacks; lost lists objects in the state that no longer belong to the stage. Foreign objects are reported
// and left alone. It fails if the state treats a foreign object as the stage's own, or if castle cannot
// verify an owner.
func (d *destruction) checkOwnership(
	ctx context.Context, s *Stage,
) (ours []gate.Import, lost []string, err error) {
	var refused error
	err = d.inspectRecorded(ctx, s, func(preflight string, f gate.Inspection) {
		lost = append(lost, f.Lost...)
		for _, own := range f.Ours {
			ours = append(ours, own.Import)
		}
		mistaken := slices.Clone(f.Unverified)
		for _, foreign := range f.Foreign {
			switch {
			case foreign.ConflictsWith != "":
				foreign.Fixes = nil // they are for a create
				mistaken = append(mistaken, foreign)
			case foreign.Unverified:
				mistaken = append(mistaken, foreign)
			default:
				d.run.Notice(fmt.Sprintf("%s is not this cluster's and stays", foreign.What))
			}
		}
		if len(mistaken) > 0 {
			refused = errors.Join(refused, &run.PreflightError{
				Preflight: preflight, Foreign: mistaken,
				TerraformCommand: d.run.Cluster.TerraformCommand(s.Record.Name),
				UntrackCommand:   d.run.Cluster.UntrackCommand(s.Record.Name),
			})
		}
	})
	return ours, lost, errors.Join(err, refused)
}

// inspectRecorded passes the name and result of each recorded preflight to see.
func (d *destruction) inspectRecorded(
	ctx context.Context, s *Stage, see func(string, gate.Inspection),
) error {
	known, err := run.ExpectedResources(s.dir, s.state)
	if err != nil {
		return err
	}
	preflights, err := s.preflights(d.run.Cluster.Options.Environ)
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

// revoke ends the credentials that the stage's objects issued, such as Vault's leases.
func (d *destruction) revoke(ctx context.Context, s *Stage) error {
	preflights, err := s.preflights(d.run.Cluster.Options.Environ)
	if err != nil {
		return err
	}
	for _, p := range preflights {
		if p.Revoke == nil {
			continue
		}
		err := d.run.Step(s.Record.Name, s.Record.Layer, "revoke", func() error {
			if err := p.Revoke(ctx, cluster.Known(s.state), d.run.Notice); err != nil {
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
func (s *Stage) preflights(environ []string) ([]gate.Preflight, error) {
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
		p, err := types[i].New(check.Type+"."+check.Label, gate.Target{Environ: environ}, values)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
