package create

import (
	"context"
	"errors"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
)

// preparation is a stage's work directory being made ready while earlier stages
// are applied: the module's copy, castle's override and terraform init.
type preparation struct {
	ready chan struct{}
	work  *run.Workspace
	err   error
}

// prepareAll prepares the stages in the background, first needed first. One
// goes after the other: concurrent inits would race for the plugin cache. The
// returned channel is closed when nothing is being prepared any more.
func (r *creation) prepareAll(ctx context.Context, chosen []*config.Stage) <-chan struct{} {
	for _, s := range chosen {
		r.prepared[s] = &preparation{ready: make(chan struct{})}
	}
	order, err := graph.Sort(chosen, run.StageNeeds)
	if err != nil {
		order = chosen
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range order {
			p := r.prepared[s]
			p.work, p.err = r.prepare(ctx, s)
			close(p.ready)
		}
	}()
	return done
}

func (r *creation) prepare(ctx context.Context, s *config.Stage) (*run.Workspace, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w, err := r.run.OpenWorkspace(s.Name, s.Layer)
	if err != nil {
		return nil, err
	}
	if err := w.Root.Materialise(s.Module, r.run.Override(s)); err != nil {
		return w, err
	}
	return w, r.run.Retry(ctx, s.Name, s.Layer, func(bool) error { return w.Root.Init(ctx) })
}

// workshop waits until a stage is prepared.
func (r *creation) workspace(ctx context.Context, s *config.Stage) (*run.Workspace, error) {
	p := r.prepared[s]
	if p == nil { // a stage that was not chosen, such as a volatile one
		r.preparing.Lock()
		defer r.preparing.Unlock()
		work, err := r.prepare(ctx, s)
		r.unchosen = append(r.unchosen, work)
		return work, err
	}
	select {
	case <-p.ready:
		return p.work, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// closeWorkshops closes the logs of all stages.
func (r *creation) closeWorkspaces() error {
	all := r.unchosen
	for _, p := range r.prepared {
		all = append(all, p.work)
	}
	var errs []error
	for _, w := range all {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(errs...)
}
