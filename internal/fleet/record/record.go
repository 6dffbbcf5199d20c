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
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
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

// Begin begins a run of a command; all that have the same words are one. The context that it returns is
// cancelled when another castle has taken the run over. The error is an *AtWorkError if one is at work.
func Begin(ctx context.Context, o cluster.Options, notice func(string), words ...string) (
	_ context.Context, _ *Run, err error) {
	s, root, err := cluster.OpenFleet(ctx, o)
	if err != nil {
		return ctx, nil, err
	}
	r := &Run{store: s}
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	dir, working, _, err := s.OpenDir(ctx, root, words[0], fmt.Sprintf("%x", sum[:8]))
	if err != nil {
		return ctx, nil, errors.Join(err, s.Close())
	}
	files := dir.NewRun(words[0])
	r.ID = files.ID
	ctx, r.lock, err = run.TakeLock(ctx, dir, working, r.ID, func(text string) {
		if working == nil || text != commits.InClear(working.Log()) { // a record holds no secret
			notice(text)
		}
	})
	if held, is := errors.AsType[*state.HeldError](err); is {
		err = &AtWorkError{Command: words[0], Held: held}
	}
	if err != nil {
		if errors.As(err, new(*commits.UntrustedError)) || errors.As(err, new(*commits.DamagedError)) ||
			errors.As(err, new(*workingcopy.BehindError)) { // the ways out of a cluster's do not lead here
			err = fmt.Errorf("the record of earlier fleet runs: %w; to begin without it, remove %s here, "+
				"and fleet_runs/ from a store", err, dir.Path())
		}
		return ctx, nil, errors.Join(err, s.Close())
	}
	if err = r.readBefore(dir); err == nil {
		r.journal, err = files.Journal()
	}
	if err != nil {
		return ctx, nil, errors.Join(err, r.lock.Release(ctx, "could not begin", keep), s.Close())
	}
	return ctx, r, nil
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
		events = slices.DeleteFunc(events, func(e event.Event) bool { return !says(e) })
		if len(events) == 0 && (unread == nil || errors.Is(unread, fs.ErrNotExist)) {
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
	runs := run.Each(commands, func(command string) *history.Run {
		newest, err := last(ctx, s, root, command)
		failed[slices.Index(commands, command)] = err
		return newest
	})
	runs = slices.DeleteFunc(runs, func(r *history.Run) bool { return r == nil })
	if len(runs) == 0 {
		return nil, errors.Join(failed...)
	}
	return slices.MaxFunc(runs, func(a, b *history.Run) int { return strings.Compare(a.ID, b.ID) }),
		errors.Join(failed...)
}

// last returns the newest run of a command.
func last(ctx context.Context, s *cluster.StateStore, root, command string) (*history.Run, error) {
	c := &cluster.Cluster{Config: &config.Cluster{}, Store: s}
	c.Config.Name, c.Config.Platform, _ = strings.Cut(command, "/")
	var err error
	if c.Dir, c.Copy, _, err = s.OpenDir(ctx, root, c.Config.Name, c.Config.Platform); err != nil {
		return nil, err
	}
	newest, _, err := history.Last(c.Dir, cluster.Holder(ctx, c))
	return newest, err
}
