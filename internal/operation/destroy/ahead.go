package destroy

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
)

// ahead opens the workspaces of the stages that are destroyed next, and starts their providers, while others
// are still destroyed.
type ahead struct {
	run    *run.Run
	needs  func(*Stage) []*Stage // what is destroyed before a stage
	stages []*Stage

	opening sync.WaitGroup
	mu      sync.Mutex
	begun   map[*Stage]bool
	opened  map[*Stage]*opened
}

type opened struct {
	done chan struct{}
	work *run.Workspace
	err  error
}

func openAhead(r *run.Run, stages []*Stage) *ahead {
	return &ahead{
		run: r, stages: stages, needs: graph.Reverse(stages, needsAmong(stages)),
		begun: map[*Stage]bool{}, opened: map[*Stage]*opened{},
	}
}

// begin notes that a stage's turn has come, and prepares those whose turn may come next.
func (a *ahead) begin(ctx context.Context, s *Stage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun[s] = true
	waits := func(need *Stage) bool { return !a.begun[need] }
	for _, next := range a.stages {
		if !slices.Contains(a.needs(next), s) || slices.ContainsFunc(a.needs(next), waits) ||
			next.denied != nil || len(next.targets()) == 0 {
			continue
		}
		o := &opened{done: make(chan struct{})}
		a.opened[next] = o
		a.opening.Go(func() {
			defer close(o.done)
			if o.work, o.err = a.run.RecordedWorkspace(ctx, next.Record); o.err == nil {
				o.work.Root.StartProviders()
			}
		})
	}
}

// workspace returns a stage's workspace, ready for Terraform, which the caller closes.
func (a *ahead) workspace(ctx context.Context, s *Stage) (*run.Workspace, error) {
	a.mu.Lock()
	o := a.opened[s]
	delete(a.opened, s)
	a.mu.Unlock()
	if o != nil {
		if <-o.done; o.err == nil { // it ends with ctx
			return o.work, nil
		}
	}
	work, err := a.run.RecordedWorkspace(ctx, s.Record)
	if err == nil {
		work.Root.StartProviders()
	}
	return work, err
}

// close closes the workspaces of the stages whose turn has not come.
func (a *ahead) close() error {
	a.opening.Wait()
	var errs []error
	for _, o := range a.opened {
		if o.err == nil {
			errs = append(errs, o.work.Close())
		}
	}
	return errors.Join(errs...)
}
