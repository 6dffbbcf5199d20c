// Package share works on the state that several machines share: it moves the state of a cluster from one
// place to another, shows the log of its commits, goes back to an earlier one, changes its keys, and removes
// the lock of a dead run. A place is the URL of a store, or host:directory for a state directory.
package share

import (
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
)

// logOf returns the log of a cluster in the configured store.
func logOf(c *cluster.Cluster) (*commits.Log, error) {
	if c.Store == nil {
		return nil, cluster.Usagef("%s has no log: its state is in %s alone\n  `castle state migrate %s "+
			"--to URL` moves it to a store", c.Name(), c.Dir.Path(), c.Options.Cluster)
	}
	return c.Store.Log(c.Name())
}

// here is the place of the cluster's state directory.
func here(c *cluster.Cluster) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + ":" + c.Dir.Path()
}

// locked works while it holds the lock of the state directory. do gets the id of the run.
func locked(ctx context.Context, c *cluster.Cluster, kind string, notice func(string),
	do func(run string) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	run := c.Dir.NewRun(kind).ID
	lock, err := c.Dir.Lock(run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	text, err := lock.TakeOver(ctx)
	if text != "" {
		notice(text)
	}
	if err != nil {
		return err
	}
	return do(run)
}

// release releases the lock in a store, also after an interrupt.
func release(ctx context.Context, c *cluster.Cluster, held *workingcopy.Held, what string) error {
	keep := c.Config.Runs
	if keep == 0 { // castle.hcl has an error
		keep = math.MaxInt32
	}
	return held.Release(context.WithoutCancel(ctx), what, keep)
}

// size returns the sum of the sizes of files.
func size(files map[string]commits.File) (n int64) {
	for _, f := range files {
		n += f.Size
	}
	return n
}

// Locked returns the newest commit if a run holds the lock in it, else nil. A run in the same state directory
// that is alive is a *state.HeldError.
func Locked(ctx context.Context, c *cluster.Cluster) (*commits.Commit, error) {
	if alive := c.Dir.Holder(); alive != nil {
		return nil, alive
	}
	log, err := logOf(c)
	if err != nil {
		return nil, err
	}
	head, err := log.Head(ctx)
	if err != nil || head == nil || head.Lock == nil {
		return nil, err
	}
	return head, nil
}

// Unlock removes the lock of a dead run, and reports whether it did: the run may have released it meanwhile.
// It refuses a holder that gives a sign of life while castle watches the log: *state.HeldError.
func Unlock(ctx context.Context, c *cluster.Cluster, run string, notice func(string),
) (removed bool, err error) {
	log, err := logOf(c)
	if err != nil {
		return false, err
	}
	wc, err := workingcopy.Open(c.Dir, log, c.Store.Writer)
	if err != nil {
		return false, err
	}
	if err := wc.Unlock(ctx, notice); err != nil {
		return false, err
	}
	head, err := log.Head(ctx)
	return head != nil && head.Over == run, err
}

// Rekey encrypts all contents of the newest commit for the recipients in castle.hcl, and signs them in a new
// commit, under both locks. The newest commit has to be of a signer in castle.hcl, of a key that the caller
// has himself, or of one that trust names; confirm shows it to the user. It returns the new commit.
func Rekey(ctx context.Context, c *cluster.Cluster, trust string, confirm func(*commits.Commit) error,
	notice func(string)) (rekeyed *commits.Commit, err error) {
	if c.Store != nil {
		c.Store.Encryption.Trust = []string{trust}
	}
	log, err := logOf(c)
	if err != nil {
		return nil, err
	}
	head, err := log.Head(ctx)
	switch {
	case err != nil:
		return nil, err
	case head == nil, len(c.Store.Encryption.Recipients) == 0:
		return nil, cluster.Usagef("%s has no state in %s, or castle.hcl no recipients and signers for it",
			c.Name(), log.URL())
	}
	if err := confirm(head); err != nil {
		return nil, err
	}
	err = locked(ctx, c, "rekey", notice, func(run string) (err error) {
		working, err := c.Store.Open(c.Dir)
		if err != nil {
			return err
		}
		held, err := working.Take(ctx, run, notice)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release(ctx, c, held, "the end of the rekey")) }()
		if !maps.Equal(held.Head().Files, head.Files) {
			return cluster.Usagef("%s: another run has changed the state meanwhile: look again", c.Name())
		}
		err = held.Restore(ctx, held.Head(), "encrypted and signed anew")
		rekeyed = held.Head()
		return err
	})
	return rekeyed, err
}

// Entry is one commit of a cluster's log.
type Entry struct {
	Number int64     `json:"number"`
	Time   time.Time `json:"time"`
	Run    string    `json:"run,omitempty"`
	User   string    `json:"user"`
	Host   string    `json:"host"`
	Castle string    `json:"castle"`
	What   string    `json:"what"`
	Files  int       `json:"files"` // of the whole state
	// Changed counts the files that were written or removed since the commit before; Bytes is the size of
	// those that were written. Both are absent if the store no longer has that commit.
	Changed *int   `json:"changed,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
	Locked  bool   `json:"locked"`
	Moved   string `json:"moved,omitempty"` // where the state lives instead
	Signer  string `json:"signer,omitempty"`
	// Untrusted reports that no signer in castle.hcl vouches for the commit.
	Untrusted bool `json:"untrusted,omitempty"`
}

// History returns the commits that the store still has, the newest first; all if limit is 0.
func History(ctx context.Context, c *cluster.Cluster, limit int) ([]Entry, error) {
	log, err := logOf(c)
	if err != nil {
		return nil, err
	}
	all, err := log.List(ctx)
	if err != nil {
		return nil, err
	}
	entries := []Entry{}
	for i, one := range all {
		if limit > 0 && i == limit {
			break
		}
		var before *commits.Commit
		if i+1 < len(all) && all[i+1].Sequence == one.Sequence-1 {
			before = all[i+1]
		}
		entries = append(entries, entry(one, before))
	}
	return entries, nil
}

func entry(one, before *commits.Commit) Entry {
	e := Entry{
		Number: one.Sequence, Time: one.Time, Run: one.Run, User: one.User, Host: one.Host,
		Castle: one.Castle, What: one.What, Files: len(one.Files), Locked: one.Lock != nil, Moved: one.Moved,
		Signer: one.Signer, Untrusted: one.Untrusted != nil,
	}
	if before == nil && one.Sequence > 1 {
		return e
	}
	if before == nil {
		before = &commits.Commit{}
	}
	changed, written := 0, int64(0)
	for path, f := range one.Files {
		if before.Files[path] != f {
			changed, written = changed+1, written+f.Size
		}
	}
	for path := range before.Files {
		if _, still := one.Files[path]; !still {
			changed++
		}
	}
	e.Changed, e.Bytes = &changed, &written
	return e
}
