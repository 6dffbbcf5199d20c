// Package workingcopy makes a state directory the working copy of a log of commits. The log is the authority:
// Checkout brings the directory to its newest commit, and a run that holds the lock commits each change. What
// only this machine needs is not committed. store.json names the log, the commit that the directory was
// brought to, and what each file was then. store.lock excludes two checkouts at once. A change that the log
// lacks is never overwritten. If the newest commit is still the one that the directory was brought to, or
// comes from the run of this machine that died, the next run commits the change. If another run has committed
// since, the changed files go to diverged/<time>/.
package workingcopy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// Copy is a state directory that follows a log.
type Copy struct {
	dir      *state.Dir
	log      *commits.Log
	writer   commits.Writer // without a run
	lasts    time.Duration  // of a lock
	waits    time.Duration  // for a store that is away
	volatile bool           // the next restart of the machine loses the directory
	machine  string         // identifies the machine and its process table; empty if unknown
}

// Open returns the working copy of a log in a state directory. It makes no request. It refuses a directory
// that holds a state of its own which was never migrated, or the working copy of another log: *OtherError.
func Open(dir *state.Dir, log *commits.Log, w commits.Writer) (*Copy, error) {
	r, err := load(dir)
	if err != nil {
		return nil, err
	}
	if r != nil && r.Commit != nil && r.Commit.Cluster != "" && r.Commit.Cluster != dir.Cluster() {
		return nil, fmt.Errorf("%s is that of cluster %s\n  move %s away: the next command takes the state "+
			"from %s", filepath.Join(dir.Path(), recordFile), r.Commit.Cluster, dir.Path(), r.URL)
	}
	other := &OtherError{Cluster: dir.Cluster(), Dir: dir.Path(), Configured: log.URL()}
	if r == nil {
		if own, err := hasOwn(dir); err != nil || own {
			return nil, errors.Join(err, other)
		}
	} else if r.URL != log.URL() {
		other.Actual = r.URL
		return nil, other
	}
	return &Copy{dir: dir, log: log, writer: w, lasts: commits.LockTime, waits: commits.LockTime,
		machine: machine()}, nil
}

// hasOwn reports whether a directory that is no working copy holds a state.
func hasOwn(dir *state.Dir) (bool, error) {
	files, err := list(dir.Path())
	delete(files, layoutFile)
	return len(files) > 0, err
}

// OtherError reports that the state of a cluster is not where the configuration says.
type OtherError struct {
	Cluster    string
	Dir        string // the state directory
	Configured string // URL; empty: local
	Actual     string // URL, or host:directory; empty: the state directory alone
}

func (e *OtherError) Error() string {
	is := func(at string) string { return fmt.Sprintf("cluster %s: its state is in %s", e.Cluster, at) }
	migrate := "`castle state migrate " + e.Cluster + " --to %s`"
	switch {
	case e.Actual == "":
		return is(e.Dir) + fmt.Sprintf(" alone, and %s is configured\n  "+migrate+" moves it there; "+
			"if the store has the right state, move that directory away", e.Configured, e.Configured)
	case e.Configured == "":
		return is(e.Actual) + fmt.Sprintf(", and no store is configured; %s is only its working copy\n"+
			"  set the store in castle.hcl or CASTLE_STATE_STORE, or move the state here with "+migrate,
			e.Dir, "local")
	case !strings.Contains(e.Actual, "://"):
		return is(e.Actual) + fmt.Sprintf(" alone: it has moved from %s\n  configure no store, or run "+
			migrate+" there", e.Configured, e.Configured)
	}
	return is(e.Actual) + fmt.Sprintf(", and %s is configured\n  configure the first one (store in "+
		"castle.hcl, CASTLE_STATE_STORE), or move the state with CASTLE_STATE_STORE=%s and "+migrate,
		e.Configured, process.Quote(e.Actual), e.Configured)
}

// moved returns the error for a head that is marked as moved.
func moved(c *Copy, head *commits.Commit) error {
	return &OtherError{Cluster: c.dir.Cluster(), Dir: c.dir.Path(), Configured: c.log.URL(),
		Actual: head.Moved}
}

// Local refuses a state directory that is the working copy of a log, for a configuration without a store:
// *OtherError. It makes no request.
func Local(dir *state.Dir) error {
	r, err := load(dir)
	if err != nil || r == nil {
		return err
	}
	return &OtherError{Cluster: dir.Cluster(), Dir: dir.Path(), Actual: r.URL}
}

// LockTime returns CASTLE_STATE_LOCK_TIME of an environment, else commits.LockTime.
func LockTime(environ []string) (time.Duration, error) {
	const name, least = "CASTLE_STATE_LOCK_TIME", time.Second
	text := process.Getenv(environ, name)
	if text == "" {
		return commits.LockTime, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least {
		return 0, fmt.Errorf("%s=%s: give a duration of at least %v, such as 2m", name, text, least)
	}
	return d, nil
}

// SetLockTime sets how long locks last that this copy takes: commits.LockTime, unless it was called.
func (c *Copy) SetLockTime(d time.Duration) { c.lasts, c.waits = d, d }

// SetVolatile says that the next restart of the machine loses the directory. A run then waits for a store
// that is away for ten times as long as its lock lasts: a lock that was taken over meanwhile still ends it.
func (c *Copy) SetVolatile() { c.volatile, c.waits = true, 10*c.lasts }

// Log returns the log.
func (c *Copy) Log() *commits.Log { return c.log }

// BehindError reports that the log lacks commits which this machine has seen.
type BehindError struct {
	Cluster, URL, Dir string

	Seen, Head int64 // the newest commits; Head is 0 if the log is empty
}

func (e *BehindError) Error() string {
	has := fmt.Sprintf("another commit %d, or ends at commit %d", e.Seen, e.Head)
	if e.Head == 0 {
		has = "no commit"
	}
	return fmt.Sprintf("cluster %s: %s has %s, and this machine has seen commit %d there: somebody has "+
		"emptied or replaced the store\n"+
		"  restore the store from a backup; or, if %s has the right state, remove %s "+
		"and run `castle state migrate %s --to URL` with another place",
		e.Cluster, e.URL, has, e.Seen, e.Dir, filepath.Join(e.Dir, recordFile), e.Cluster)
}

// head returns the newest commit. It refuses one that cannot follow what this machine has seen, or has moved.
func (c *Copy) head(ctx context.Context, r *record) (*commits.Commit, error) {
	head, err := c.log.Head(ctx)
	if err != nil {
		return nil, err
	}
	if r != nil && r.Commit != nil {
		behind := &BehindError{Cluster: c.dir.Cluster(), URL: c.log.URL(), Dir: c.dir.Path(),
			Seen: r.Commit.Sequence}
		switch {
		case head == nil:
			return nil, behind
		case head.Sequence < r.Commit.Sequence,
			head.Sequence == r.Commit.Sequence && head.ID != r.Commit.ID:
			behind.Head = head.Sequence
			return nil, behind
		}
	}
	if head != nil && head.Moved != "" {
		return nil, moved(c, head)
	}
	return head, nil
}
