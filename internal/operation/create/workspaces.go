package create

import (
	"context"
	"errors"
	"sync"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
)

// workspaces prepares work directories while earlier stages are applied: the
// module's copy, castle's override and terraform init.
type workspaces struct {
	run    *run.Run
	chosen map[*config.Stage]*preparation

	mu     sync.Mutex // for the others, which are prepared when they are needed
	others []*run.Workspace
}

type preparation struct {
	ready chan struct{}
	work  *run.Workspace
	err   error
}

// prepareAll prepares the chosen stages in the background in the order of their
// needs, one after the other: concurrent inits race for the plugin cache. The
// returned channel is closed when nothing is being prepared any more.
func (w *workspaces) prepareAll(ctx context.Context, chosen []*config.Stage) <-chan struct{} {
	w.chosen = map[*config.Stage]*preparation{}
	for _, s := range chosen {
		w.chosen[s] = &preparation{ready: make(chan struct{})}
	}
	order, err := graph.Sort(chosen, run.StageNeeds)
	if err != nil {
		order = chosen
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range order {
			p := w.chosen[s]
			p.work, p.err = w.prepare(ctx, s)
			close(p.ready)
		}
	}()
	return done
}

func (w *workspaces) prepare(ctx context.Context, s *config.Stage) (*run.Workspace, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	work, err := w.run.OpenWorkspace(s.Name, s.Layer)
	if err != nil {
		return nil, err
	}
	if err := work.Root.Materialise(s.Module, w.run.Override(s)); err != nil {
		return work, err
	}
	return work, w.run.Retry(ctx, s.Name, s.Layer, func(bool) error { return work.Root.Init(ctx) })
}

// get waits until a stage is prepared, and prepares one that was not chosen.
func (w *workspaces) get(ctx context.Context, s *config.Stage) (*run.Workspace, error) {
	p := w.chosen[s]
	if p == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		work, err := w.prepare(ctx, s)
		w.others = append(w.others, work)
		return work, err
	}
	select {
	case <-p.ready:
		return p.work, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close closes the logs of all stages.
func (w *workspaces) close() error {
	all := w.others
	for _, p := range w.chosen {
		all = append(all, p.work)
	}
	var errs []error
	for _, work := range all {
		if work != nil {
			errs = append(errs, work.Close())
		}
	}
	return errors.Join(errs...)
}
