// Package share works on the state that several machines share: it moves the state of a cluster from one
// place to another, shows the log of its commits, goes back to an earlier one, changes its keys, and removes
// the lock of a dead run.
//
// A place is the URL of a store, or host:directory for the state directory of one machine.
package share

import (
	"context"
	"errors"
	"math"
	"os"

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
