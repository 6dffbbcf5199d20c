package destroy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// restate brings what is known of a stage up to date with its state.
func (r *destruction) restate(d *Stage) (err error) {
	dir := r.run.Cluster.Dir.Stage(d.Record.Name)
	if d.state, err = r.run.ReadState(dir); err != nil {
		return err
	}
	d.Resources = d.managed()
	d.inFlight, err = recovery.InFlight(dir, d.state)
	return err
}

// takeIn takes into the state what a run that was cut short was making of a
// stage, so that it goes, too.
func (r *destruction) importInterrupted(ctx context.Context, d *Stage, work *run.Workspace, lost []state.Intended) error {
	if slices.ContainsFunc(lost, func(c state.Intended) bool { return recovery.IsInCluster(c.Type, d.Record.InCluster) }) {
		if err := r.reachable(ctx); err != nil {
			return err
		}
	}
	kubeconfig, err := os.ReadFile(r.run.Cluster.Dir.Kubeconfig())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o := recovery.Lookup{
		Cluster: gate.Target{Kubeconfig: kubeconfig}, InCluster: d.Record.InCluster,
		Datacenter: func() (*proxmox.Client, error) { return r.datacenter(d) },
	}
	if err := recovery.Import(ctx, r.run, cluster.StageRef{Name: d.Record.Name, Layer: d.Record.Layer}, work, lost, o); err != nil {
		return err
	}
	return r.restate(d)
}

// stage razes one recorded stage.
func (r *destruction) destroyStage(ctx context.Context, d *Stage) error {
	err := r.run.Retry(ctx, d.Record.Name, d.Record.Layer, func(again bool) error { return r.destroyResources(ctx, d, again) })
	if err != nil && !d.attempted {
		return err
	}
	if err != nil {
		return r.partialFailure(ctx, d, err)
	}
	if err := r.verify(ctx, d); err != nil {
		return err
	}
	if d.EndsWithCluster {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deferred = append(r.deferred, d)
		return nil
	}
	if d.Record.EndsCluster {
		// Before the platform's own record goes: a run killed in between finds
		// it again and knows that the rest needs no cluster any more.
		if err := r.archiveDeferred(); err != nil {
			return err
		}
	}
	dir := r.run.Cluster.Dir.Stage(d.Record.Name)
	if err := dir.Remove(); err != nil {
		return err
	}
	if err := r.noteRemoved(d, ""); err != nil {
		return err
	}
	r.run.Emit(event.Event{Kind: event.StageGone, Layer: d.Record.Layer, Stage: d.Record.Name})
	return nil
}

// clear destroys what Terraform owns of a stage: all of it, or only what would
// survive the cluster if the cluster ends anyway. What a killed run has left
// unrecorded is imported first, so that it goes too. A stage that owns nothing
// needs no Terraform. Another try begins with what the one before has left.
func (r *destruction) destroyResources(ctx context.Context, d *Stage, again bool) (err error) {
	if d.denied != nil {
		return d.denied
	}
	if again {
		if err := r.restate(d); err != nil {
			return err
		}
	}
	ours, outdated, err := r.checkOwnership(ctx, d)
	if err != nil {
		return err
	}
	lost := d.lost()
	if len(d.targets()) == 0 && len(ours) == 0 && len(lost) == 0 {
		return r.verifyAdopted(ctx, d, nil)
	}
	if !d.begun {
		d.begun = true
		r.run.Emit(event.Event{Kind: event.StageStarted, Layer: d.Record.Layer, Stage: d.Record.Name})
	}
	if err := r.checkBlocked(ctx, d); err != nil {
		return err
	}
	release, err := r.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	work, err := run.RecordedWorkspace(ctx, r.run, d.Record)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	dir := r.run.Cluster.Dir.Stage(d.Record.Name)
	if err := errors.Join(dir.Fingerprint().Clear(), dir.Snapshot(), saveHeld(dir, d)); err != nil {
		return err
	}
	if err := run.Untrack(ctx, r.run, cluster.StageRef{Name: d.Record.Name, Layer: d.Record.Layer}, work, outdated); err != nil {
		return err
	}
	for _, one := range ours {
		if err := run.Import(ctx, r.run, d.Record.Name, d.Record.Layer, work, one); err != nil {
			return err
		}
	}
	if err := r.importInterrupted(ctx, d, work, lost); err != nil {
		return err
	}
	if err := r.saveOwned(ctx, d); err != nil {
		return err
	}
	if err := r.revoke(ctx, d); err != nil {
		return err
	}
	return r.terraform(ctx, d, work)
}

// terraform has Terraform destroy what is in the state of a stage.
func (r *destruction) terraform(ctx context.Context, d *Stage, work *run.Workspace) error {
	targets := d.targets()
	if len(targets) == 0 {
		return r.verifyAdopted(ctx, d, nil)
	}
	options := terraform.PlanOptions{Destroy: true}
	switch {
	case d.EndsWithCluster:
		options.Targets = targets
	case len(d.inCluster()) > 0:
		if err := r.reachable(ctx); err != nil {
			return err
		}
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, inClusterBound, r.timeoutCause())
		defer stop()
	}
	err := r.run.Step(d.Record.Name, d.Record.Layer, "destroy", func() error {
		plan, err := work.Root.Plan(ctx, options)
		if err != nil {
			return err
		}
		var intended []state.Intended
		for _, c := range plan.Changes {
			intended = append(intended, state.Intended{Address: c.Address, Type: c.Type, Action: c.Action})
		}
		d.attempted = true
		return work.Apply(ctx, r.run, r.run.Cluster.Dir.Stage(d.Record.Name), plan, intended)
	})
	if err == nil {
		return r.verifyAdopted(ctx, d, targets)
	}
	if !d.attempted && ctx.Err() == nil {
		err = fmt.Errorf("%w\n  nothing of it was destroyed; if what does not answer is gone for good, forget what was kept there: %s %s ADDRESS",
			err, r.run.Cluster.Command("state forget"), d.Record.Name)
	}
	return run.During("destroy", err)
}

// ours asks the recorded preflights what a killed run of this cluster has made
// that the state does not know. Foreign things are told and left alone; one that
// the state takes for the stage's own would be destroyed with it, so nothing is.
// Nor is anything while nobody can tell whether a thing is the stage's own. lost is
// what the state knows and is not the stage's any more.
func (r *destruction) checkOwnership(ctx context.Context, d *Stage) (ours []gate.Import, lost []string, err error) {
	var refused error
	err = r.inspectRecorded(ctx, d, func(preflight string, f gate.Inspection) {
		lost = append(lost, f.Lost...)
		for _, own := range f.Ours {
			ours = append(ours, own.Import)
		}
		mistaken := slices.Clone(f.Unverified)
		for _, foreign := range f.Foreign {
			if foreign.ConflictsWith != "" || foreign.Unverified {
				if foreign.ConflictsWith != "" {
					foreign.Fixes = nil // they are for a create
				}
				mistaken = append(mistaken, foreign)
				continue
			}
			r.run.Notice(fmt.Sprintf("%s is not this cluster's and stays", foreign.What))
		}
		if len(mistaken) > 0 {
			refused = errors.Join(refused, &run.PreflightError{
				Preflight: preflight, Foreign: mistaken, Terraform: r.run.Cluster.TerraformCommand(d.Record.Name), Forget: r.run.Cluster.UntrackCommand(d.Record.Name),
			})
		}
	})
	return ours, lost, errors.Join(err, refused)
}

func (r *destruction) inspectRecorded(ctx context.Context, d *Stage, see func(string, gate.Inspection)) error {
	all, err := run.ExpectedResources(r.run.Cluster.Dir.Stage(d.Record.Name), d.state)
	if err != nil {
		return err
	}
	return r.eachRecorded(d, func(preflight gate.Preflight) error {
		findings, err := preflight.Inspect(ctx, all, r.run.Notice)
		if err != nil {
			return run.NoAnswer(preflight.Name, err)
		}
		see(preflight.Name, findings)
		return nil
	})
}

// revoke ends what a stage's things gave out.
func (r *destruction) revoke(ctx context.Context, d *Stage) error {
	return r.eachRecorded(d, func(preflight gate.Preflight) error {
		if preflight.Revoke == nil {
			return nil
		}
		return r.run.Step(d.Record.Name, d.Record.Layer, "revoke", func() error {
			if err := preflight.Revoke(ctx, cluster.Known(d.state), r.run.Notice); err != nil {
				return fmt.Errorf("%s: %w", preflight.Name, err)
			}
			return nil
		})
	})
}

// eachRecorded does something with each preflight that was recorded of a stage.
func (r *destruction) eachRecorded(d *Stage, do func(gate.Preflight) error) error {
	for _, check := range d.Record.Preflights {
		for _, typ := range cluster.PreflightTypes() {
			if typ.Name != check.Type {
				continue
			}
			values, err := check.Decode()
			if err != nil {
				return err
			}
			preflight, err := typ.New(check.Type+"."+check.Label, gate.Target{Environ: r.run.Cluster.Options.Environ}, values)
			if err != nil {
				return err
			}
			if err := do(preflight); err != nil {
				return err
			}
		}
	}
	return nil
}

// archiveDeferred forgets, now that the cluster is proved gone, what was inside it.
func (r *destruction) archiveDeferred() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deferred {
		if err := r.run.Cluster.Dir.Stage(d.Record.Name).Archive(r.run.Id); err != nil {
			return err
		}
		if err := r.noteRemoved(d, "what was in the cluster ended with it; its state is kept in the archive"); err != nil {
			return err
		}
		r.run.Emit(event.Event{Kind: event.StageGone, Layer: d.Record.Layer, Stage: d.Record.Name, Text: "ended with the cluster"})
	}
	r.deferred = nil
	return r.run.Cluster.RemoveExports()
}
