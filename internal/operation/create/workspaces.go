package create

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/run"
)

// progress is what a run knows of one stage. Its fields are written by one task of the stage at a time.
type progress struct {
	outcome event.Kind // how it ends if its gates open
	began   time.Time

	prepared   chan struct{} // closed when the workspace is ready; nil for a stage that was not chosen
	work       *run.Workspace
	prepareErr error

	refresh    sync.Once // for a volatile stage, which is read again at most once
	refreshErr error
}

// prepareAll prepares the work directories of stages in the background while earlier ones are applied: the
// module's copy, castle's override and terraform init. It takes one after the other: concurrent inits race
// for the plugin cache. finish ends that and closes all logs.
func (c *creation) prepareAll(ctx context.Context, stages []*config.Stage) (finish func() error) {
	for _, s := range stages {
		c.progress[s].prepared = make(chan struct{})
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range stages {
			c.prepare(ctx, s)
			close(c.progress[s].prepared)
		}
	}()
	return func() error {
		stop()
		<-done
		var errs []error
		for _, p := range c.progress {
			if p.work != nil {
				errs = append(errs, p.work.Close())
			}
		}
		return errors.Join(errs...)
	}
}

func (c *creation) prepare(ctx context.Context, s *config.Stage) {
	p := c.progress[s]
	if p.prepareErr = context.Cause(ctx); p.prepareErr != nil {
		return
	}
	if p.work, p.prepareErr = c.run.OpenWorkspace(s.Name, s.Layer); p.prepareErr == nil {
		p.prepareErr = c.run.Retry(ctx, s.Name, s.Layer,
			func(bool) error { return p.work.Prepare(ctx, s, nil) })
	}
}

// workspace waits until a stage's workspace is prepared, and prepares that of one that was not chosen.
func (c *creation) workspace(ctx context.Context, s *config.Stage) (*run.Workspace, error) {
	p := c.progress[s]
	if p.prepared == nil {
		c.prepare(ctx, s)
		return p.work, p.prepareErr
	}
	select {
	case <-p.prepared:
		return p.work, p.prepareErr
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
