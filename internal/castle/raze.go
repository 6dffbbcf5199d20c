package castle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// stage razes one recorded stage.
func (r *destruction) stage(ctx context.Context, d *Doomed) error {
	err := r.persist(ctx, d.Record.Name, d.Record.Layer, func(again bool) error { return r.clear(ctx, d, again) })
	if err != nil && !d.attempted {
		return err
	}
	if err != nil {
		return r.halfway(ctx, d, err)
	}
	if err := r.prove(ctx, d); err != nil {
		return err
	}
	if d.Collapses {
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
	dir := r.dir.Stage(d.Record.Name)
	if err := dir.Remove(); err != nil {
		return err
	}
	if err := r.forgotten(d, ""); err != nil {
		return err
	}
	r.emit(event.Event{Kind: event.StageGone, Layer: d.Record.Layer, Stage: d.Record.Name})
	return nil
}

// clear destroys what Terraform owns of a stage: all of it, or only what would
// survive the cluster if the cluster ends anyway. What a killed run has left
// unrecorded is imported first, so that it goes too. A stage that owns nothing
// needs no Terraform. Another try begins with what the one before has left.
func (r *destruction) clear(ctx context.Context, d *Doomed, again bool) (err error) {
	if d.denied != nil {
		return d.denied
	}
	if again {
		if err := r.restate(d); err != nil {
			return err
		}
	}
	ours, outdated, err := r.ours(ctx, d)
	if err != nil {
		return err
	}
	lost := d.lost()
	if len(d.targets()) == 0 && len(ours) == 0 && len(lost) == 0 {
		return r.account(ctx, d, nil)
	}
	if !d.begun {
		d.begun = true
		r.emit(event.Event{Kind: event.StageStarted, Layer: d.Record.Layer, Stage: d.Record.Name})
	}
	if err := r.hindered(ctx, d); err != nil {
		return err
	}
	release, err := r.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	work, err := r.recordedWork(ctx, d.Record)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	dir := r.dir.Stage(d.Record.Name)
	if err := errors.Join(dir.Fingerprint().Clear(), dir.Snapshot(), hold(dir, d)); err != nil {
		return err
	}
	if err := r.letGo(ctx, place{d.Record.Name, d.Record.Layer}, work, outdated); err != nil {
		return err
	}
	for _, one := range ours {
		if err := r.importOne(ctx, d.Record.Name, d.Record.Layer, work, one); err != nil {
			return err
		}
	}
	if err := r.takeIn(ctx, d, work, lost); err != nil {
		return err
	}
	if err := r.remember(ctx, d); err != nil {
		return err
	}
	if err := r.revoke(ctx, d); err != nil {
		return err
	}
	return r.terraform(ctx, d, work)
}

// terraform has Terraform destroy what is in the state of a stage.
func (r *destruction) terraform(ctx context.Context, d *Doomed, work *workshop) error {
	targets := d.targets()
	if len(targets) == 0 {
		return r.account(ctx, d, nil)
	}
	options := terraform.PlanOptions{Destroy: true}
	switch {
	case d.Collapses:
		options.Targets = targets
	case len(d.inCluster()) > 0:
		if err := r.reachable(ctx); err != nil {
			return err
		}
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, inClusterBound, r.silent())
		defer stop()
	}
	err := r.step(d.Record.Name, d.Record.Layer, "destroy", func() error {
		plan, err := work.root.Plan(ctx, options)
		if err != nil {
			return err
		}
		var intended []state.Intended
		for _, c := range plan.Changes {
			intended = append(intended, state.Intended{Address: c.Address, Type: c.Type, Action: c.Action})
		}
		d.attempted = true
		return work.apply(ctx, r.run, r.dir.Stage(d.Record.Name), plan, intended)
	})
	if err == nil {
		return r.account(ctx, d, targets)
	}
	if !d.attempted && ctx.Err() == nil {
		err = fmt.Errorf("%w\n  nothing of it was destroyed; if what does not answer is gone for good, forget what was kept there: %s %s ADDRESS",
			err, r.command("state forget"), d.Record.Name)
	}
	return during("destroy", err)
}

// ours asks the recorded preflights what a killed run of this cluster has made
// that the state does not know. Foreign things are told and left alone; one that
// the state takes for the stage's own would be destroyed with it, so nothing is.
// Nor is anything while nobody can tell whether a thing is the stage's own. lost is
// what the state knows and is not the stage's any more.
func (r *destruction) ours(ctx context.Context, d *Doomed) (ours []gate.Import, lost []string, err error) {
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
			r.notice(fmt.Sprintf("%s is not this cluster's and stays", foreign.What))
		}
		if len(mistaken) > 0 {
			refused = errors.Join(refused, &PreflightError{
				Preflight: preflight, Foreign: mistaken, Terraform: r.terraformCommand(d.Record.Name), Forget: r.forgetCommand(d.Record.Name),
			})
		}
	})
	return ours, lost, errors.Join(err, refused)
}

func (r *destruction) inspectRecorded(ctx context.Context, d *Doomed, see func(string, gate.Inspection)) error {
	all, err := expected(r.dir.Stage(d.Record.Name), d.state)
	if err != nil {
		return err
	}
	return r.eachRecorded(d, func(preflight gate.Preflight) error {
		findings, err := preflight.Inspect(ctx, all, r.notice)
		if err != nil {
			return unanswered(preflight.Name, err)
		}
		see(preflight.Name, findings)
		return nil
	})
}

// revoke ends what a stage's things gave out.
func (r *destruction) revoke(ctx context.Context, d *Doomed) error {
	return r.eachRecorded(d, func(preflight gate.Preflight) error {
		if preflight.Revoke == nil {
			return nil
		}
		return r.step(d.Record.Name, d.Record.Layer, "revoke", func() error {
			if err := preflight.Revoke(ctx, known(d.state), r.notice); err != nil {
				return fmt.Errorf("%s: %w", preflight.Name, err)
			}
			return nil
		})
	})
}

// eachRecorded does something with each preflight that was recorded of a stage.
func (r *destruction) eachRecorded(d *Doomed, do func(gate.Preflight) error) error {
	for _, check := range d.Record.Preflights {
		for _, typ := range PreflightTypes() {
			if typ.Name != check.Type {
				continue
			}
			values, err := check.Decode()
			if err != nil {
				return err
			}
			preflight, err := typ.New(check.Type+"."+check.Label, gate.Target{Environ: r.options.Environ}, values)
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
		if err := r.dir.Stage(d.Record.Name).Archive(r.id); err != nil {
			return err
		}
		if err := r.forgotten(d, "what was in the cluster ended with it; its state is kept in the archive"); err != nil {
			return err
		}
		r.emit(event.Event{Kind: event.StageGone, Layer: d.Record.Layer, Stage: d.Record.Name, Text: "ended with the cluster"})
	}
	r.deferred = nil
	return r.withdraw()
}
