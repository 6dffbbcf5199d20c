package create

import (
	"context"
	"errors"
	"fmt"
	"runtime/trace"
	"slices"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// attempt is one try at applying one stage, from its inputs to the copy of its state.
type attempt struct {
	creation *creation
	run      *run.Run
	stage    *config.Stage
	dir      *state.Stage
	work     *run.Workspace

	inputs   map[string]cty.Value
	before   *state.State // with what an interrupted run had made
	approved *approval    // by a saved plan; nil without one
	pending  []kube.PendingRelease
	imported bool               // an interrupted run was making something
	ready    *state.Fingerprint // of the last good apply; nil if it is unknown
	adopted  []string           // addresses
	outdated []string           // addresses that have configured an earlier instance

	changes  bool            // what comes now may change the stage
	plan     *terraform.Plan // to apply; nil without one
	planless bool            // the configuration is applied without a plan
	objects  []terraform.Object
}

// step is one step of an attempt. The execution trace of a profile shows it by its name.
type step struct {
	name string
	do   func(context.Context) error
	when func() bool // nil: always
}

// steps lists the steps of an attempt in order. The first error ends it. From the plan on, finish follows.
func (a *attempt) steps() []step {
	exact := func() bool { return a.approved.isExact() }
	imported := func() bool { return a.imported }
	planned := func() bool { return a.plan != nil }
	return []step{
		{"prepare the work directory", a.prepare, nil},
		{"compare with the saved plan", a.approve, nil},
		{"look for pending releases", a.findPending, nil},
		// Before the new record: only the old one may list the changes in flight.
		{"import what an interrupted run was making", a.importInterrupted, nil},
		{"prepare the work directory again", a.prepare, imported}, // it may hold the recorded module now
		{"taint what an interrupted run left unfinished", a.taint, nil},
		{"check that the saved plan adopts nothing", a.checkNothingToAdopt, exact},
		{"record the stage, and that it is not ready", a.record, nil},
		{"run the preflights, and import the stage's own objects", a.importOurs, nil},
		{"adopt existing objects", a.adopt, func() bool { return !exact() }},

		{"plan", a.makePlan, nil},
		{"remove pending releases that are planned, and plan again", a.removePending, planned},
		{"keep what was adopted", a.keepAdopted, planned},
		{"end an empty plan", a.endEmpty, planned},
		{"keep borrowed files", a.keepBorrowed, planned},
		{"check that no machine leaves the cluster or is harmed", a.checkMachines, planned},
		{"confirm losses", a.confirmLosses, planned},
		{"run the preflights again", a.recheck, planned}, // the plan took a while
		{"remove what replaced objects have admitted", a.removeAdmitted, planned},
		{"record what is applied", a.recordPlanned, planned},
		{"apply", a.apply, func() bool { return a.plan != nil || a.planless }},
		{"restore the objects of Helm releases", a.restoreReleases, nil},
		{"record what it has configured", func(context.Context) error {
			return applied.RecordInstances(a.run, a.stage, a.creation.machine.has)
		}, nil},
	}
}

// try makes the attempt.
func (a *attempt) try(ctx context.Context) error {
	release, err := a.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, s := range a.steps() {
		if s.when == nil || s.when() {
			trace.WithRegion(ctx, s.name, func() { err = s.do(ctx) })
		}
		if err != nil {
			break
		}
	}
	if a.changes {
		err = a.finish(ctx, errors.Join(err, a.discard()))
	}
	return err
}

// finish ends an attempt that may have changed the stage, after every result: each state has to have a copy.
func (a *attempt) finish(ctx context.Context, err error) error {
	unconfirmed := errors.As(err, new(*review.UnagreedError)) ||
		errors.As(err, new(*review.UnreviewedError)) || errors.As(err, new(*review.NodeError)) ||
		errors.As(err, new(*review.HarmError)) || errors.As(err, new(*review.ExceedsError)) ||
		errors.As(err, new(*run.RefusedError))
	if a.ready != nil && unconfirmed {
		err = errors.Join(err, a.dir.Fingerprint().Write(*a.ready)) // nothing has changed
	}
	err = errors.Join(err, a.dir.Snapshot())
	if ctx.Err() == nil {
		if idErr := a.noteMachineIDs(ctx); idErr != nil { // the state alone has to do then
			a.run.Notice(fmt.Sprintf("%s: cannot note which machines these are: %v", a.stage.Name, idErr))
		}
	}
	return err
}

// prepare makes the work directory ready for Terraform, and reads the state.
func (a *attempt) prepare(ctx context.Context) (err error) {
	if a.inputs == nil {
		a.inputs, err = a.run.Inputs(a.stage)
	}
	if err == nil {
		err = a.work.Prepare(ctx, a.stage, a.inputs)
	}
	if err != nil {
		return err
	}
	a.work.Root.StartProviders()
	a.before, err = a.run.ReadState(a.dir)
	return err
}

func (a *attempt) approve(context.Context) (err error) {
	a.approved, err = a.creation.saved.approve(a.stage, a.work.Root, a.before)
	return err
}

// importInterrupted imports the objects that an interrupted run was making for the stage. A pending release
// does not exist yet: it is removed when it is planned.
func (a *attempt) importInterrupted(ctx context.Context) error {
	lost, err := recovery.InFlight(a.dir, a.before)
	if err != nil {
		return err
	}
	lost = slices.DeleteFunc(lost, func(c state.Intended) bool {
		isPending := func(p kube.PendingRelease) bool { return isRelease(p, c.Type, c.ID) }
		return slices.ContainsFunc(a.pending, isPending)
	})
	if len(lost) == 0 {
		return nil
	}
	a.imported = true
	if err := a.dir.Snapshot(); err != nil {
		return err
	}
	return recovery.Import(ctx, a.work, lost, a.lookup())
}

func (a *attempt) taint(ctx context.Context) (err error) {
	a.before, err = recovery.Taint(ctx, a.work, a.before)
	return err
}

// record records the stage before anything of it changes. From now on nothing marks it as up to date.
func (a *attempt) record(context.Context) (err error) {
	if a.ready, err = a.dir.Fingerprint().Read(); err != nil {
		return err
	}
	first := applied.RecordFirst(a.work, a.stage, a.before)
	return errors.Join(a.dir.Fingerprint().Clear(), first, a.dir.Snapshot())
}

// inspect runs the stage's preflights again and passes each inspection to use, unless one stops the stage.
func (a *attempt) inspect(ctx context.Context, use func(gate.Inspection) error) error {
	for _, p := range a.stage.Preflights {
		found, err := waiting.Inspect(ctx, a.run, a.stage, p)
		if err != nil {
			return run.NoAnswer(p.Name(), err)
		}
		if err := waiting.Refuse(a.run, a.stage, p, found, a.creation.adopts); err != nil {
			return err
		}
		if err := use(found); err != nil {
			return err
		}
	}
	return nil
}

// importOurs imports the objects that a killed run made, so that no run makes them twice.
func (a *attempt) importOurs(ctx context.Context) error {
	return a.inspect(ctx, func(found gate.Inspection) error {
		if err := a.work.Untrack(ctx, found.Lost); err != nil {
			return err
		}
		for _, own := range found.Ours {
			if err := a.borrow(own); err != nil {
				return err
			}
			if err := a.work.Import(ctx, own.Import); err != nil {
				return err
			}
		}
		return nil
	})
}

// recheck runs the preflights right before the apply. A plan that does not know of an object that is the
// stage's own has to be made anew.
func (a *attempt) recheck(ctx context.Context) error {
	return a.inspect(ctx, func(found gate.Inspection) error {
		if len(found.Ours) > 0 {
			appeared := found.Ours[0].Import.What
			return &transientError{fmt.Errorf("%s appeared while the stage was planned", appeared)}
		}
		return nil
	})
}

// removeAdmitted has preflights remove what the objects have admitted that the plan deletes or replaces.
func (a *attempt) removeAdmitted(ctx context.Context) error {
	st, err := a.run.ReadState(a.dir)
	if err != nil {
		return err
	}
	ended := xslices.Filter(cluster.Known(st), func(k gate.Known) bool {
		return slices.ContainsFunc(a.plan.Changes, func(c terraform.Change) bool {
			return c.Address == k.Address && (c.Action == "replace" || c.Action == "delete")
		})
	})
	if len(ended) == 0 {
		return nil
	}
	for _, p := range a.stage.Preflights {
		bound, err := waiting.BindPreflight(a.run, a.stage, p)
		if err == nil && bound.Replaced != nil {
			err = bound.Replaced(ctx, ended)
		}
		if err != nil {
			return run.NoAnswer(p.Name(), err)
		}
	}
	return nil
}

// transientError is an error that the next try may not meet: it plans anew, or a webhook serves by then.
type transientError struct{ error }

func (e *transientError) Unwrap() error { return e.error }

// Transient returns true.
func (e *transientError) Transient() bool { return true }
