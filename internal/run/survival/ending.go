package survival

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// Recorded binds the data in a stage's record to the cluster.
func Recorded(r *run.Run, rec state.Record, target gate.Target) (all []Data, err error) {
	types := cluster.SurvivorTypes()
	for _, one := range rec.Survives {
		at := slices.IndexFunc(types, func(t survivor.Type) bool { return t.Name == one.Type })
		if at < 0 {
			return nil, fmt.Errorf("data %s: this castle does not know the type %s", one.Label, one.Type)
		}
		values, err := one.Decode()
		if err != nil {
			return nil, err
		}
		data, err := bind(r, types[at], one.Label, target, values)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// End saves data before their cluster ends: Flux is suspended, so that it undoes nothing, and all writes end.
// It returns what was saved. If anything cannot be saved and proved, everything is set going again, and the
// error is a *run.RefusedError. What an interrupted destroy has saved is only proved once more.
func End(ctx context.Context, r *run.Run, target gate.Target, all []Data) (saved []survivor.Save, err error) {
	var due []Data
	for _, data := range all {
		if err := known(ctx, r, data); err != nil {
			return nil, refusal(ctx, r, data, err)
		}
		done, finished, err := finished(ctx, r, data)
		switch {
		case err != nil:
			return nil, refusal(ctx, r, data, err)
		case !finished:
			due = append(due, data)
		case done != nil:
			saved = append(saved, *done)
		}
	}
	if len(due) == 0 {
		return saved, nil
	}
	for _, data := range due { // before anything is ended
		if _, err := data.Survivor.Saves(ctx); err != nil {
			return nil, refusal(ctx, r, data, err)
		}
	}
	r.Notice("saving " + names(due) + ": Flux is suspended and all writes end")
	for _, data := range due {
		one, err := end(ctx, r, target, data)
		if err != nil {
			return nil, setGoing(ctx, r, target, due, refusal(ctx, r, data, err))
		}
		saved = append(saved, *one)
	}
	return saved, nil
}

// known records from the cluster how data began, if the record of that is lost.
func known(ctx context.Context, r *run.Run, data Data) error {
	if _, decided := r.Outputs.Births()[data.Label]; decided {
		return nil
	}
	b, err := read(ctx, r, data)
	if err != nil || b == nil {
		return err
	}
	return r.SetBirth(data.Label, b)
}

// answerTime is how long a cluster that was being destroyed may take to answer.
const answerTime = 10 * time.Second

// finished reports whether data need no save, and returns the one that they have.
func finished(ctx context.Context, r *run.Run, data Data) (*survivor.Save, bool, error) {
	b := r.Outputs.Births()[data.Label]
	if b.Frozen && b.Saved != nil { // by an interrupted destroy; somebody may have permitted writes since
		asking, stop := context.WithTimeout(ctx, answerTime)
		wrote, _ := data.Survivor.Freeze(asking) //nolint:errcheck // then nobody can
		if stop(); !wrote {
			_, err := data.Survivor.Prove(ctx, *b.Saved)
			return b.Saved, true, err
		}
	}
	if used, err := data.Survivor.InUse(ctx); err != nil || used {
		return nil, false, err
	}
	if b.From == nil || !b.Restored.IsZero() {
		r.Notice(fmt.Sprintf("data %s: the cluster has no such object, so nothing to save", data.Label))
		return nil, true, nil
	}
	r.Notice(fmt.Sprintf("data %s: their restore is not complete; %s stays the newest", data.Label, b.From))
	_, err := data.Survivor.Prove(ctx, *b.From)
	return b.From, true, err
}

// end freezes and saves data. The record comes first, for whoever completes or undoes a killed run.
func end(ctx context.Context, r *run.Run, target gate.Target, data Data) (*survivor.Save, error) {
	b := r.Outputs.Births()[data.Label]
	b.Frozen, b.Saved = true, nil
	err := r.SetBirth(data.Label, &b)
	if err == nil {
		err = kube.SuspendFlux(ctx, target)
	}
	if err == nil {
		_, err = data.Survivor.Freeze(ctx)
	}
	if err != nil {
		return nil, err
	}
	saved, err := data.Survivor.Save(ctx, b, true)
	if err != nil {
		return nil, err
	}
	b.Saved = saved
	r.Notice(fmt.Sprintf("data %s: saved as %s, and proved in the object store", data.Label, saved.ID))
	return saved, r.SetBirth(data.Label, &b)
}

// setGoing permits what was frozen again, also if the run was interrupted. It returns the reason for that,
// and what it could not permit.
func setGoing(ctx context.Context, r *run.Run, target gate.Target, all []Data, reason error) error {
	ctx = context.WithoutCancel(ctx)
	for _, data := range all {
		if !r.Outputs.Births()[data.Label].Frozen {
			continue
		}
		if err := thaw(ctx, r, data, target); err != nil {
			reason = errors.Join(reason, fmt.Errorf("data %s: writes are still off, which %s ends: %w",
				data.Label, r.Cluster.Command("create"), err))
		}
	}
	return reason
}

// Remind tells that a destroy has left data as it had saved them: the cluster has not ended. Flux stays
// suspended, or it would delete them with the stage that brings them.
func Remind(r *run.Run, all []Data) {
	for _, data := range all {
		if r.Outputs.Births()[data.Label].Frozen {
			r.Notice(fmt.Sprintf("data %s: saved, and nobody can write them; the same command goes on, and "+
				"%s permits writes again", data.Label, r.Cluster.Command("create")))
		}
	}
}

// thaw permits writing again and lets Flux go on.
func thaw(ctx context.Context, r *run.Run, data Data, target gate.Target) error {
	b := r.Outputs.Births()[data.Label]
	b.Saved = nil // from here on something may be written
	if err := r.SetBirth(data.Label, &b); err != nil {
		return err
	}
	is, err := data.Survivor.Live(ctx)
	if err == nil && is != nil {
		err = data.Survivor.Thaw(ctx)
	}
	if err == nil {
		err = kube.ResumeFlux(ctx, target)
	}
	if err != nil {
		return err
	}
	b.Frozen = false
	return r.SetBirth(data.Label, &b)
}

// refusal tells what would be lost if the cluster ended now.
func refusal(ctx context.Context, r *run.Run, data Data, reason error) error {
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), reason)
	}
	refused := &run.RefusedError{
		Refused: fmt.Sprintf("the data %s cannot be saved; nothing was destroyed", data.Label),
		Reasons: []string{foreign.OneLine(reason.Error()), newest(ctx, data)},
		Fix: "repair it, and run the same command again; or lose what is not saved: " +
			r.Cluster.Options.CommandLine + " --discard-data",
	}
	return refused
}

// newest describes the newest save that can be restored.
func newest(ctx context.Context, data Data) string {
	saves, err := data.Survivor.Saves(ctx)
	if err != nil {
		return "castle cannot tell what is saved: " + foreign.OneLine(err.Error())
	}
	for _, s := range saves {
		if _, err := data.Survivor.Prove(ctx, s); err == nil {
			return fmt.Sprintf("what was written since %s is lost: that is the newest one, %s old", s,
				age(s.Time))
		}
	}
	return "all of them are lost: there is no save that can be restored"
}

// Discarded tells what ends with the cluster unsaved.
func Discarded(ctx context.Context, r *run.Run, all []Data) {
	for _, data := range all {
		if _, done, err := finished(ctx, r, data); !done || err != nil {
			r.Notice(fmt.Sprintf("data %s: not saved, as --discard-data says: %s", data.Label,
				newest(ctx, data)))
		}
	}
}
