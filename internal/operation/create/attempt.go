package create

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
)

// attempt is one try at applying one stage, from its inputs to the copy of its state.
type attempt struct {
	creation *creation
	run      *run.Run
	stage    *config.Stage
	dir      *state.Stage
	work     *run.Workspace

	before   *state.State // with what an interrupted run had made
	approved *approval    // by a saved plan; nil without one
	pending  []kube.PendingRelease
	adopted  []string // addresses
}

func (a *attempt) try(ctx context.Context) error {
	release, err := a.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	a.adopted = nil
	inputs, err := a.run.Inputs(a.stage)
	if err != nil {
		return err
	}
	if err := a.work.Prepare(ctx, a.stage, inputs); err != nil {
		return err
	}
	a.work.StartProviders()
	if a.before, err = a.run.ReadState(a.dir); err != nil {
		return err
	}
	if a.approved, err = a.creation.saved.approve(a.stage, a.work.Root, a.before); err != nil {
		return err
	}
	a.pending = a.pendingReleases(ctx)
	// Before the new record: only the old one may list the changes in flight.
	imported, err := a.importInterrupted(ctx)
	if err != nil {
		return err
	}
	if imported { // the work directory may hold the recorded module now
		if err := a.work.Prepare(ctx, a.stage, inputs); err != nil {
			return err
		}
		a.work.StartProviders()
		if a.before, err = a.run.ReadState(a.dir); err != nil {
			return err
		}
	}
	if a.before, err = recovery.Taint(ctx, a.work, a.before); err != nil {
		return err
	}
	if err := a.checkNothingToAdopt(ctx); err != nil {
		return err
	}
	ready, err := a.dir.Fingerprint().Read()
	if err != nil {
		return err
	}
	first := applied.RecordFirst(a.work, a.stage, a.before)
	if err := errors.Join(a.dir.Fingerprint().Clear(), first, a.dir.Snapshot()); err != nil {
		return err
	}
	if err := a.importOurs(ctx); err != nil {
		return err
	}
	if !a.approved.isExact() {
		if err := a.adopt(ctx); err != nil {
			return err
		}
	}
	if err = a.change(ctx); err == nil {
		err = restoreReleases(ctx, a)
	}
	unconfirmed := errors.As(err, new(*review.UnagreedError)) ||
		errors.As(err, new(*review.UnreviewedError)) || errors.As(err, new(*review.NodeError))
	if ready != nil && unconfirmed {
		err = errors.Join(err, a.dir.Fingerprint().Write(*ready)) // nothing has changed
	}
	// After every result: a state without a copy could not be restored.
	err = errors.Join(err, a.dir.Snapshot())
	if ctx.Err() == nil {
		if idErr := noteMachineIDs(ctx, a); idErr != nil { // the state alone has to do then
			a.run.Notice(fmt.Sprintf("%s: cannot note which machines these are: %v", a.stage.Name, idErr))
		}
	}
	return err
}

// importInterrupted imports the objects that an interrupted run was making for the stage, and reports
// whether it was making any. A pending release does not exist yet: it is removed when it is planned.
func (a *attempt) importInterrupted(ctx context.Context) (bool, error) {
	lost, err := recovery.InFlight(a.dir, a.before)
	if err != nil {
		return false, err
	}
	lost = slices.DeleteFunc(lost, func(c state.Intended) bool {
		isPending := func(p kube.PendingRelease) bool { return isRelease(p, c.Type, c.ID) }
		return slices.ContainsFunc(a.pending, isPending)
	})
	if len(lost) == 0 {
		return false, nil
	}
	if err := a.dir.Snapshot(); err != nil {
		return false, err
	}
	return true, recovery.Import(ctx, a.work, lost, a.lookup())
}

// inspect runs the stage's preflights again and passes each inspection to use, unless a foreign object is in
// the way.
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
			return &outdatedError{found.Ours[0].Import.What + " appeared while the stage was planned"}
		}
		return nil
	})
}

// outdatedError reports that a plan has to be made anew, and why.
type outdatedError struct{ reason string }

func (e *outdatedError) Error() string { return e.reason }

// Transient returns true: the next try imports the object, or plans without it.
func (e *outdatedError) Transient() bool { return true }
