package share

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
)

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
