package workingcopy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// machine identifies this machine since its start, and its process table: containers of one machine have the
// same boot id, and cannot see each other's processes.
func machine() string {
	boot := process.BootID()
	if boot == "" {
		return ""
	}
	table, err := process.Table()
	if err != nil {
		return ""
	}
	return boot + " " + table
}

// Take takes the cluster's lock in the log for a run, which holds the directory's own lock already, and
// brings the directory to the newest commit. It takes over the lock of a run that is dead: at once if that
// ran on this machine, else after it has watched the log for as long as the lock lasts, whatever the clocks
// say. The error is a *state.HeldError if the holder is alive. notice gets a line for each of these, and
// later for a store that is away; it may be called from several goroutines.
func (c *Copy) Take(ctx context.Context, run string, notice func(string)) (*Held, error) {
	return take(ctx, c, run, notice, (*Held).adopt)
}

// TakeRestored is Take for a log whose newest commit is damaged: it commits the files of an earlier commit
// anew, and brings the directory to them. It keeps aside what the log lacks.
func TakeRestored(ctx context.Context, c *Copy, run string, earlier *commits.Commit, what string,
	notice func(string)) (*Held, error) {
	return take(ctx, c, run, notice, func(h *Held, ctx context.Context, head *commits.Commit) error {
		if err := keepChanges(ctx, h, head); err != nil {
			return err
		}
		h.record.Run = run
		return restore(ctx, h, earlier, what)
	})
}

// take is Take with begin, which brings the directory to the head once the lock is taken.
func take(ctx context.Context, c *Copy, run string, notice func(string),
	begin func(*Held, context.Context, *commits.Commit) error) (*Held, error) {
	r, err := load(c.dir)
	if err != nil {
		return nil, err
	}
	inClear := ""
	if r == nil {
		r = &record{URL: c.log.URL(), Files: map[string]entry{}}
		inClear = commits.InClear(c.log) // later, this machine has said so
	}
	lock, err := newLock(c, run)
	if err != nil {
		return nil, err
	}
	for {
		head, err := c.head(ctx, r)
		if err != nil {
			return nil, err
		}
		over, err := c.await(ctx, head, takeOver, notice)
		if err != nil {
			return nil, err
		}
		next := c.next(run, "begin", lock)
		if over.Lock != nil {
			next.Over = over.Lock.Run
		}
		next.Files = over.Files
		var after *commits.Commit
		if over.Sequence > 0 {
			after = &over
		}
		taken, err := c.log.Append(ctx, after, next)
		if errors.As(err, new(*commits.ConflictError)) { // another run was faster
			continue
		}
		if err != nil {
			return nil, err
		}
		if inClear != "" {
			notice(inClear)
		}
		return c.hold(ctx, r, after, taken, notice, begin)
	}
}

func newLock(c *Copy, run string) (*commits.Lock, error) {
	self, err := process.Read(os.Getpid())
	return &commits.Lock{
		Run: run, Host: c.writer.Host, Boot: c.machine, PID: os.Getpid(), Start: self.Start,
		Since: time.Now().UTC(), Lasts: c.lasts,
	}, err
}

// next returns a commit of this writer.
func (c *Copy) next(run, what string, lock *commits.Lock) commits.Commit {
	return commits.Commit{Run: run, Host: c.writer.Host, User: c.writer.User, Castle: c.writer.Castle,
		What: what, Lock: lock}
}

// What castle does with the lock of a dead run, for notices.
const (
	takeOver = "taking over"
	removal  = "removing its lock"
)

// await returns the head once nobody holds the lock, or the head with the lock of a run that is dead. It
// returns the zero commit for an empty log.
func (c *Copy) await(
	ctx context.Context, head *commits.Commit, then string, notice func(string),
) (commits.Commit, error) {
	if head == nil {
		return commits.Commit{}, nil
	}
	lock := head.Lock
	if lock == nil {
		return *head, nil
	}
	died := fmt.Sprintf("run %s on %s died without finishing", lock.Run, lock.Host)
	switch {
	case c.gone(head):
		died += "; " + then
	default:
		notice(fmt.Sprintf("cluster %s is locked by run %s (process %d on %s); castle watches the log for "+
			"at most %s; without a sign of life in that time, the run counts as dead", c.dir.Cluster(),
			lock.Run, lock.PID, lock.Host, lock.Lasts.Round(time.Second)))
		now, err := c.watch(ctx, head)
		if err != nil {
			return commits.Commit{}, err
		}
		if now.Lock == nil {
			return *now, nil
		}
		if now.ID != head.ID {
			by := now.Lock
			return commits.Commit{}, &state.HeldError{Cluster: c.dir.Cluster(), Run: by.Run, Host: by.Host,
				PID: by.PID, Since: by.Since, Store: c.log.URL(), Seen: now.Time}
		}
		died += fmt.Sprintf(": it gave no sign of life for %s; %s", lock.Lasts.Round(time.Second), then)
	}
	ended, err := endRun(ctx, c, lock)
	if err != nil {
		return commits.Commit{}, err
	}
	if len(ended) > 0 {
		died += fmt.Sprintf(", ended %d of its processes", len(ended))
	}
	notice(died)
	return *head, nil
}

// gone reports whether the holder ran on this machine and its process does not exist any more. Processes of
// other users may be hidden.
func (c *Copy) gone(head *commits.Commit) bool {
	lock := head.Lock
	if c.machine == "" || lock.Boot != c.machine || head.User != c.writer.User {
		return false
	}
	p, err := process.Read(lock.PID)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	return p.Ended || p.Start != lock.Start
}

// endRun ends what the holder has left on this machine: two runs must never change a cluster at once.
func endRun(ctx context.Context, c *Copy, lock *commits.Lock) ([]string, error) {
	if c.machine == "" || lock.Boot != c.machine {
		return nil, nil
	}
	ended, err := process.EndRun(ctx, lock.Run)
	if err != nil {
		err = fmt.Errorf("end the processes of run %s: %w", lock.Run, err)
	}
	return ended, err
}

// watch watches the log for as long as the lock of a commit lasts, and returns the head then: the same
// commit, or earlier a newer one.
func (c *Copy) watch(ctx context.Context, from *commits.Commit) (*commits.Commit, error) {
	begun := time.Now()
	for {
		left := max(from.Lock.Lasts, time.Second) - time.Since(begun)
		if left <= 0 {
			return from, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(left, max(from.Lock.Lasts/20, 100*time.Millisecond))):
		}
		now, err := c.log.Head(ctx)
		switch {
		case err != nil:
			return nil, err
		case now == nil:
			return nil, &BehindError{Cluster: c.dir.Cluster(), URL: c.log.URL(), Dir: c.dir.Path(),
				Seen: from.Sequence}
		case now.Moved != "":
			return nil, moved(c, now)
		case now.ID != from.ID:
			return now, nil
		}
	}
}

// Unlock removes the lock of a run that is dead, for a person who knows that it is. It refuses a holder that
// gives a sign of life while it watches the log for as long as the lock lasts.
func (c *Copy) Unlock(ctx context.Context, notice func(string)) error {
	r, err := load(c.dir)
	if err != nil {
		return err
	}
	for {
		head, err := c.head(ctx, r)
		if err != nil || head == nil || head.Lock == nil {
			return err
		}
		over, err := c.await(ctx, head, removal, notice)
		if err != nil || over.Lock == nil {
			return err
		}
		next := c.next("", "castle unlock", nil)
		next.Files, next.Over = over.Files, over.Lock.Run
		_, err = c.log.Append(ctx, &over, next)
		if !errors.As(err, new(*commits.ConflictError)) {
			return err
		}
	}
}
