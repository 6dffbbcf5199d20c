package create

import (
	"context"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
)

// begin notes that a stage's turn has come and starts the providers of the stages whose turn may come next:
// those that need only stages that have begun, or none and wait for a preflight. A stage that may be up to
// date starts none before it is known.
func (c *creation) begin(ctx context.Context, s *config.Stage) {
	c.progress[s].begun.Store(true)
	for next, p := range c.progress {
		comes := slices.Contains(next.Needs, s) || len(next.Needs) == 0 && c.preflights
		if p.prepared == nil || p.begun.Load() || !comes {
			continue
		}
		waits := func(need *config.Stage) bool { return !c.progress[need].begun.Load() }
		old, err := c.run.Cluster.Dir.Stage(next.Name).Fingerprint().Read()
		if err != nil || old != nil || slices.ContainsFunc(next.Needs, waits) {
			continue
		}
		c.starting.Go(func() {
			work, err := c.workspace(ctx, next)
			if err == nil && ctx.Err() == nil && !p.begun.Load() { // its own turn starts them, and ends them
				work.Root.StartProviders()
			}
		})
	}
}
