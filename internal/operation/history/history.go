// Package history shows what the runs of a cluster have left in its state directory: the list of the runs,
// and the lines of one run. It changes nothing, except that Prune removes old runs.
package history

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/run/applied"
)

// History is the result of `castle history`.
type History struct {
	Cluster  string        `json:"cluster"`
	Platform string        `json:"platform"`
	Keep     int           `json:"keep"` // how many runs castle keeps; 0: all
	Runs     []history.Run `json:"runs"` // the newest first
}

// List returns the runs that the state directory has.
func List(ctx context.Context, c *cluster.Cluster) (History, error) {
	h := History{Cluster: c.Config.Name, Platform: c.Config.Platform, Keep: c.Config.Runs,
		Runs: []history.Run{}}
	for one, err := range history.Runs(c.Dir, cluster.Holder(ctx, c)) {
		if err != nil {
			return h, c.MaskError(err)
		}
		one.Reason = c.Masker.Hide(one.Reason)
		h.Runs = append(h.Runs, one)
	}
	return h, nil
}

// Removed is the result of a Prune.
type Removed struct {
	Cluster  string   `json:"cluster"`
	Platform string   `json:"platform"`
	Keep     int      `json:"keep"`
	Removed  []string `json:"removed"` // the ids of the runs
	Left     int      `json:"left"`
}

// Prune removes the runs beyond the newest ones: as many as keep says, or as the configuration does if keep
// is 0. castle keeps an older run that it reads again.
func Prune(ctx context.Context, c *cluster.Cluster, keep int, notice func(string)) (Removed, error) {
	if keep == 0 {
		keep = c.Config.Runs
	}
	r := Removed{Cluster: c.Config.Name, Platform: c.Config.Platform, Keep: keep, Removed: []string{}}
	removed, err := applied.Prune(ctx, c, keep, notice)
	if err != nil {
		return r, err
	}
	r.Removed = append(r.Removed, removed...)
	left, err := List(ctx, c)
	r.Left = len(left.Runs)
	return r, err
}
