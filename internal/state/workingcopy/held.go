package workingcopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/store"
)

const (
	scanInterval = 500 * time.Millisecond
	logInterval  = 5 * time.Second // journals and logs alone can wait
	patience     = 3 * time.Second // without a notice
)

// retries are the pauses after failed commits.
func retries() wait.Backoff {
	return wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 10, Cap: 5 * time.Second}
}

// Held is the cluster's lock in the log. It commits what changes in the directory within a second, and gives
// a sign of life at least three times while the lock lasts.
type Held struct {
	copy   *Copy
	run    string
	lock   *commits.Lock
	notice func(string)

	requests chan request
	ended    <-chan struct{}
	stop     context.CancelFunc // ends both loops
	loops    sync.WaitGroup
	lost     chan struct{}

	// Of the loop that commits, or its caller while that does not run.
	record *record
	stored map[string]commits.File // by hash: stored, and not yet named by a commit

	turn chan struct{} // of the one Append at a time, which alone changes the head

	mu       sync.Mutex
	head     *commits.Commit
	appended time.Time
	cause    *LostError
	failed   error // why the last Append failed
	away     bool  // the last attempt failed, and a notice says so
	last     bool  // the next commit releases the lock
}

// request asks the loop for a commit, or for something else that must not meet one.
type request struct {
	what string
	do   func(context.Context) error // nil: commit
	done chan error
}

// hold brings the directory, by begin, to the commit that has taken the lock, and begins the loops.
func (c *Copy) hold(
	ctx context.Context, r *record, head, taken *commits.Commit, notice func(string),
	begin func(*Held, context.Context, *commits.Commit) error,
) (h *Held, err error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var one sync.Mutex
	h = &Held{
		copy: c, run: taken.Lock.Run, lock: taken.Lock, record: r, head: taken, appended: time.Now(),
		requests: make(chan request), ended: running.Done(), stop: stop, lost: make(chan struct{}),
		stored: map[string]commits.File{}, turn: make(chan struct{}, 1),
		notice: func(text string) {
			one.Lock()
			defer one.Unlock()
			notice(text)
		},
	}
	h.loops.Go(func() { h.beat(running) })
	if len(taken.Files) == 0 {
		err = c.log.Mark(ctx)
	}
	if err == nil {
		err = begin(h, ctx, head)
	}
	if err != nil {
		h.end()
		h.last = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.lock.Lasts/2)
		defer cancel()
		unfreed := h.append(ctx, func(next *commits.Commit) bool {
			next.What = "could not begin"
			return true
		})
		if errors.As(unfreed, new(*store.Error)) {
			unfreed = nil // the store is away, as err says; this machine takes the lock over at once
		}
		return nil, errors.Join(err, unfreed)
	}
	h.loops.Go(func() { h.loop(running) })
	return h, nil
}

// adopt brings the directory to the commit that has taken the lock, or commits what it has more than that.
func (h *Held) adopt(ctx context.Context, head *commits.Commit) (err error) {
	c, r, taken := h.copy, h.record, h.head
	unlock, err := c.lockCheckout(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	now, contents, removed, err := c.scan(ctx, r.Files)
	if err == nil && head != nil {
		err = c.log.CheckFiles(ctx, head)
	}
	if err != nil {
		return err
	}
	changed := c.changes(r, now)
	if head != nil && !r.leads(head) || head == nil && r.Commit != nil {
		notices, err := c.keepAside(r, head, changed, contents)
		for _, text := range notices {
			h.notice(text)
		}
		if err != nil {
			return err
		}
		if err := c.apply(ctx, r, now, taken); err != nil {
			return err
		}
		r.Run = h.run
		return errors.Join(r.save(c.dir), c.dir.Committed(removed))
	}
	if err := c.restoreMissing(ctx, taken, now, removed, h.notice); err != nil {
		return err
	}
	changed = c.changes(r, now)
	// Commits of the last run whose answer was lost: what their files are like here is not known.
	maps.DeleteFunc(r.Files, func(name string, _ entry) bool {
		f, is := taken.Files[name]
		return !is || r.Commit == nil || r.Commit.Files[name] != f
	})
	died := r.Run
	r.Commit, r.Run = taken, h.run
	if err := r.save(c.dir); err != nil {
		return err
	}
	if len(changed) == 0 || head == nil {
		return c.dir.Committed(removed)
	}
	h.notice(fmt.Sprintf("castle commits what run %s has left on this machine: %s", died, describe(changed)))
	return h.commit(ctx, "what run "+died+" left", true)
}

// keepChanges keeps the changes aside that the log lacks.
func keepChanges(ctx context.Context, h *Held, head *commits.Commit) (err error) {
	unlock, err := h.copy.lockCheckout(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	now, contents, removed, err := h.copy.scan(ctx, h.record.Files)
	if err != nil {
		return err
	}
	notices, err := h.copy.keepAside(h.record, head, h.copy.changes(h.record, now), contents)
	for _, text := range notices {
		h.notice(text)
	}
	return errors.Join(err, h.copy.dir.Committed(removed))
}

// end ends the loops.
func (h *Held) end() {
	h.stop()
	h.loops.Wait()
}

// Commit commits what has changed in the directory since the last commit and returns when the store has it.
// what describes the moment: "before networking/metallb is applied". Calls at once share a commit. The error
// is a *LostError once another run has taken the lock. If the store is away, it tries for as long as the
// lock lasts; longer if the directory is volatile.
func (h *Held) Commit(ctx context.Context, what string) error {
	return h.ask(ctx, request{what: what})
}

// ask gives the loop a request and waits for the answer.
func (h *Held) ask(ctx context.Context, r request) error {
	r.done = make(chan error, 1)
	select {
	case h.requests <- r:
	case <-h.lost:
		return h.Cause()
	case <-h.ended:
		return fmt.Errorf("cluster %s: run %s has released the lock", h.copy.dir.Cluster(), h.run)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Lost is closed when another run has taken the lock. Cause is the reason.
func (h *Held) Lost() <-chan struct{} { return h.lost }

// Cause returns the *LostError after Lost was closed, else nil.
func (h *Held) Cause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		return nil
	}
	return h.cause
}

// Release commits the rest, releases the lock and removes old commits, of which it keeps those of so many
// runs. If the store is away it says that the next command on this machine commits the rest. ctx must outlive
// an interrupt of the run.
func (h *Held) Release(ctx context.Context, what string, keep int) error {
	h.end()
	h.last = true
	left := fmt.Sprintf("the last changes stay in %s, and the next command on this machine commits them",
		h.copy.dir.Path())
	if h.copy.volatile {
		left += "; a restart of the machine before that loses them"
	}
	err := persistently(ctx, h, left, func(ctx context.Context) error { return h.commit(ctx, what, true) })
	if errors.As(err, new(*LostError)) && wasReleased(ctx, h) {
		return nil
	}
	if err != nil {
		if errors.As(err, new(*LostError)) {
			return err
		}
		return &UncommittedError{Cluster: h.copy.dir.Cluster(), Dir: h.copy.dir.Path(), Err: err}
	}
	unpruned := h.copy.log.Prune(ctx, h.head, keep, state.OnlyReads)
	// After a conflict the next run has begun, and prunes.
	if unpruned != nil && !errors.As(unpruned, new(*commits.ConflictError)) {
		h.notice(fmt.Sprintf("castle could not remove old commits; the next run does: %v", unpruned))
	}
	return nil
}

// wasReleased reports whether the commit that releases the lock was made, though its answer was lost.
func wasReleased(ctx context.Context, h *Held) bool {
	next, err := h.copy.log.Read(ctx, h.head.Sequence+1)
	return err == nil && next.Run == h.run && next.Lock == nil
}

// LostError reports that another run has taken over the lock: this one must start nothing more.
type LostError struct {
	Cluster string
	Dir     string
	Run     string          // that has lost it
	By      commits.Lock    // the holder; zero if the lock was released since, or with castle unlock
	At      *commits.Commit // the newest commit
}

func (e *LostError) Error() string {
	who := fmt.Sprintf("commit %d of %s on %s has removed it", e.At.Sequence, e.At.User, e.At.Host)
	if e.By.Run != "" {
		who = fmt.Sprintf("run %s on %s has taken it over at %s", e.By.Run, e.By.Host,
			e.By.Since.Local().Format(time.DateTime))
	}
	return fmt.Sprintf("cluster %s: run %s has lost the lock: %s\n  castle starts nothing more here; "+
		"changes that were not committed stay in %s, and the next command keeps them aside",
		e.Cluster, e.Run, who, e.Dir)
}

// UncommittedError reports that the store did not take the last changes of a run.
type UncommittedError struct {
	Cluster, Dir string

	Err error
}

func (e *UncommittedError) Error() string {
	return fmt.Sprintf("cluster %s: the last changes are not committed: %v\n  they are in %s; give the same "+
		"command again on this machine: it commits them", e.Cluster, e.Err, e.Dir)
}

func (e *UncommittedError) Unwrap() error { return e.Err }
