package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
)

// Lock is a cluster's lock: that of the state directory and, if that is a working copy, the store's.
type Lock struct {
	dir    *state.Lock
	shared *workingcopy.Held // nil without a store
	stop   context.CancelCauseFunc
	told   atomic.Bool // Lost has returned why
}

// TakeLock takes the lock of a cluster for a run and returns the context that the run works with: it is
// cancelled when another run has taken over the lock. It ends what a dead holder has left on this machine,
// and brings a working copy, which is nil without a store, to the newest commit. The error is a
// *state.HeldError if the holder is alive.
func TakeLock(ctx context.Context, dir *state.Dir, working *workingcopy.Copy, run string,
	notice func(string)) (context.Context, *Lock, error) {
	local, err := dir.Lock(run)
	if err != nil {
		return ctx, nil, err
	}
	l := &Lock{dir: local, stop: func(error) {}}
	text, err := local.TakeOver(ctx)
	if text != "" {
		notice(text)
	}
	if err == nil && working != nil {
		l.shared, err = working.Take(ctx, run, notice)
	}
	if err != nil {
		return ctx, nil, errors.Join(err, local.Unlock())
	}
	if l.shared != nil {
		ctx, l.stop = context.WithCancelCause(ctx)
		go l.watch(ctx, notice)
	}
	return ctx, l, nil
}

// watch stops the run when it has lost the lock.
func (l *Lock) watch(ctx context.Context, notice func(string)) {
	select {
	case <-l.shared.Lost():
		notice(l.shared.Cause().Error())
		l.stop(l.shared.Cause())
	case <-ctx.Done():
	}
}

// Lost returns why the run must not change anything more: a *workingcopy.LostError, or nil.
func (l *Lock) Lost() error {
	if l.shared == nil {
		return nil
	}
	cause := l.shared.Cause()
	if cause != nil {
		l.told.Store(true)
	}
	return cause
}

// Commit returns when the store has everything that is in the state directory. The next run relies on it
// after a change that what describes, on whichever machine. Without a store it does nothing.
func (l *Lock) Commit(ctx context.Context, what string) error {
	if l.shared == nil {
		return nil
	}
	if err := l.shared.Commit(ctx, what); err != nil {
		return &uncommittedError{fmt.Errorf("cannot record in the store what is needed %s, so nothing was "+
			"changed: %w", what, err)}
	}
	return nil
}

// uncommittedError reports a change that was not begun, because the store does not know of it.
type uncommittedError struct{ error }

func (e *uncommittedError) Unwrap() error { return e.error }

// Transient returns false: the commit was tried for as long as the lock lasts.
func (e *uncommittedError) Transient() bool { return false }

// Release commits what is left and releases the lock. The store keeps the last commit of so many runs; of all
// if keep is zero. The error is a *workingcopy.LostError unless Lost has returned it before.
func (l *Lock) Release(ctx context.Context, what string, keep int) (err error) {
	if keep == 0 {
		keep = math.MaxInt32
	}
	if l.shared != nil {
		// A run that was interrupted releases its lock, too.
		err = l.shared.Release(context.WithoutCancel(ctx), what, keep)
		if l.told.Load() {
			err = nil // the caller reports that
		}
	}
	l.stop(nil)
	return errors.Join(err, l.dir.Unlock())
}
