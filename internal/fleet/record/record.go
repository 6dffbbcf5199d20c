// Package record keeps what a run over many clusters has done, so that the same command goes on where the
// last one ended, on any machine. Each command has a state directory of its own, with the lock and the
// journals of a cluster's, which follows the store likewise:
//
//	<root>/fleet_runs/<store>/<command>/<digest of its words>/
//
// The journal of a run also has what the run did that it continues, so the newest one tells all. Each
// cluster's own lock protects the cluster: the record only says what need not be done again.
package record

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
)

const keep = 5 // so many runs of a command stay

// Run is a run of a command.
type Run struct {
	ID string
	// Before is the run before; nil if there was none. Did are its events that say what is done.
	Before *history.Run
	Did    []event.Event

	store   *cluster.StateStore
	lock    *run.Lock
	journal *state.Journal
}

// AtWorkError reports that another castle runs the same command.
type AtWorkError struct {
	Command string // create
	Held    *state.HeldError
}

func (e *AtWorkError) Error() string {
	return fmt.Sprintf("fleet %s: run %s (process %d on %s) is at work; wait until it ends, or interrupt it",
		e.Command, e.Held.Run, e.Held.PID, e.Held.Host)
}

func (e *AtWorkError) Unwrap() error { return e.Held }

// Begin begins a run of a command; all that have the same words and the same keys are one. The context that
// it returns is cancelled when another castle has taken the run over. With restart, a record that the store
// has lost does not matter. The error is an *AtWorkError if one is at work.
func Begin(ctx context.Context, o cluster.Options, restart bool, notice func(string), words ...string) (
	context.Context, *Run, error) {
	s, root, err := cluster.OpenFleet(ctx, o)
	if err != nil {
		return ctx, nil, err
	}
	keys := s.FileEncryption() // with others, nobody may read the earlier records, or trust them
	sum := sha256.Sum256([]byte(strings.Join(slices.Concat(words, keys.Recipients, keys.Signers), "\x00")))
	r := &Run{store: s}
	if ctx, err = r.begin(ctx, root, words[0], fmt.Sprintf("%x", sum[:8]), restart, notice); err != nil {
		return ctx, nil, errors.Join(err, s.Close())
	}
	return ctx, r, nil
}

func (r *Run) begin(ctx context.Context, root, command, digest string, restart bool, notice func(string)) (
	context.Context, error) {
	// A record has the form of a cluster's, whose name the texts have.
	what, name := "the record of castle fleet "+command, command+"/"+digest
	named := strings.NewReplacer("cluster "+name, what, " "+name, " "+what)
	dir, working, _, err := r.store.OpenDir(ctx, root, command, digest)
	if err == nil {
		r.ID = dir.NewRun(command).ID
		ctx, r.lock, err = run.TakeLock(ctx, dir, working, r.ID, func(text string) {
			if working == nil || text != commits.InClear(working.Log()) { // a record holds no secret
				notice(named.Replace(text))
			}
		})
	}
	if err != nil {
		if behind, is := errors.AsType[*workingcopy.BehindError](err); is && restart {
			if err = ownfile.RemoveAll(behind.Dir); err == nil {
				return r.begin(ctx, root, command, digest, false, notice)
			}
		}
		return ctx, refused(err, command, named)
	}
	if err = r.readBefore(dir); err == nil {
		r.journal, err = dir.Run(r.ID).Journal()
	}
	if err != nil {
		err = errors.Join(err, r.lock.Release(ctx, "could not begin", keep))
	}
	return ctx, err
}

// refused is the error of a record that cannot be used: the ways out of a cluster's do not lead here.
func refused(err error, command string, named *strings.Replacer) error {
	if held, is := errors.AsType[*state.HeldError](err); is {
		return &AtWorkError{Command: command, Held: held}
	}
	fix := "add --restart"
	if !errors.As(err, new(*workingcopy.BehindError)) {
		fix = "remove fleet_runs/ from the store, and add --restart"
		if !errors.As(err, new(*commits.UntrustedError)) && !errors.As(err, new(*commits.DamagedError)) {
			return err
		}
	}
	text, _, _ := strings.Cut(named.Replace(err.Error()), "\n")
	return fmt.Errorf("%s\n  to begin without it, %s", text, fix)
}

// readBefore reads the run before that did something, and removes old ones.
func (r *Run) readBefore(dir *state.Dir) error {
	ids, err := dir.Runs()
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, old := range ids[min(keep-1, len(ids)):] {
		err = errors.Join(err, dir.Run(old).Remove())
	}
	for _, id := range ids[:min(keep-1, len(ids))] {
		events, unread := dir.Run(id).Events()
		// It begins with a copy of the run before, of which a kill may have left a part.
		whole := slices.ContainsFunc(events, func(e event.Event) bool {
			return e.Run == id && e.Kind != event.RunStarted
		})
		events = slices.DeleteFunc(events, func(e event.Event) bool { return !says(e) })
		if (!whole || len(events) == 0) && (unread == nil || errors.Is(unread, fs.ErrNotExist)) {
			continue // it ended before it did anything
		}
		before, unread2 := history.Of(dir.Run(id), nil)
		r.Before, r.Did = &before, events
		return errors.Join(err, unread, unread2)
	}
	return err
}

// says reports whether an event says what is done.
func says(e event.Event) bool {
	return slices.Contains([]event.Kind{event.ClusterStarted, event.ClusterEnded, event.WaveApproved,
		event.WaveEnded}, e.Kind)
}

// Add adds events to the record. The store has all that say what is done when Add returns.
func (r *Run) Add(ctx context.Context, events ...event.Event) error {
	for _, e := range events {
		if err := r.journal.Append(e); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(events, says) {
		return nil
	}
	return r.lock.Commit(ctx, "before the next cluster is changed")
}

// End ends the run.
func (r *Run) End(ctx context.Context) error {
	_ = r.lock.Lost() // then it is the cause of the context, and reported
	return errors.Join(r.journal.Close(), r.lock.Release(ctx, "the end of the run", keep), r.store.Close())
}

// Latest returns the newest run of any command; nil if there is none.
func Latest(ctx context.Context, o cluster.Options) (*history.Run, error) {
	s, root, err := cluster.OpenFleet(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // all was read
	commands, err := s.Clusters(ctx, root)
	if err != nil {
		return nil, err
	}
	failed := make([]error, len(commands))
	runs := run.Each(commands, func(command string) (newest *history.Run) {
		dir, held, err := s.Recorded(ctx, root, command)
		if err == nil {
			newest, _, err = history.Last(dir, held)
		}
		// A record of earlier keys stays until somebody removes it.
		if !errors.As(err, new(*commits.UntrustedError)) && !errors.As(err, new(*commits.IdentityError)) {
			failed[slices.Index(commands, command)] = err
		}
		return newest
	})
	runs = slices.DeleteFunc(runs, func(r *history.Run) bool { return r == nil })
	if len(runs) == 0 {
		return nil, errors.Join(failed...)
	}
	return slices.MaxFunc(runs, func(a, b *history.Run) int { return strings.Compare(a.ID, b.ID) }),
		errors.Join(failed...)
}
