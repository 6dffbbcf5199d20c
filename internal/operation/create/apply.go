package create

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
)

// judgeLate waits for the gates that had to wait for other stages; the stage is
// ready when they are open.
func (r *creation) waitDeferredGates(ctx context.Context, s *config.Stage, gates []*config.Gate) error {
	if err := run.WaitGates(ctx, r.run, s, gates); err != nil {
		return err
	}
	return r.settle(ctx, s)
}

// stage makes one stage ready, or finds that it is. judgedLate says that gates
// remain which another task judges; the stage is not ready before them.
func (r *creation) stage(ctx context.Context, s *config.Stage, judgedLate bool) error {
	if s.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, s.Timeout, run.TimeoutError{After: s.Timeout})
		defer stop()
	}
	current, err := r.upToDate(ctx, s)
	switch {
	case err != nil:
		return err
	case current:
		r.outcomes.set(s, event.StageUpToDate)
	case s.Volatile:
		return r.refreshStage(ctx, s)
	default:
		if err := r.raise(ctx, s); err != nil {
			return err
		}
	}
	if judgedLate {
		return nil
	}
	return r.settle(ctx, s)
}

// raise applies a stage and waits for the gates that can be judged now.
func (r *creation) raise(ctx context.Context, s *config.Stage) error {
	if err := r.refreshNeeds(ctx, s); err != nil {
		return err
	}
	r.outcomes.set(s, event.StageReady)
	r.run.Emit(event.Event{Kind: event.StageStarted, Layer: s.Layer, Stage: s.Name})
	if err := r.apply(ctx, s); err != nil {
		return err
	}
	return run.WaitGates(ctx, r.run, s, run.ImmediateGates(s))
}

// settle ends a stage whose gates are all open: its fingerprint says from now on
// that nothing has to be done.
func (r *creation) settle(ctx context.Context, s *config.Stage) error {
	kind, took := r.outcomes.get(s)
	if kind != event.StageUpToDate {
		print, err := r.fingerprint(ctx, s)
		if err != nil {
			return err
		}
		if err := r.run.Cluster.Dir.Stage(s.Name).Fingerprint().Write(*print); err != nil {
			return err
		}
	}
	r.run.Emit(event.Event{Kind: kind, Layer: s.Layer, Stage: s.Name, Seconds: took.Seconds()})
	return nil
}

// outcomes remembers how each stage of a run will end if its gates open.
type outcomes struct {
	mu    sync.Mutex
	kinds map[*config.Stage]event.Kind
	began map[*config.Stage]time.Time
}

func (o *outcomes) set(s *config.Stage, k event.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kinds == nil {
		o.kinds, o.began = map[*config.Stage]event.Kind{}, map[*config.Stage]time.Time{}
	}
	o.kinds[s], o.began[s] = k, time.Now()
}

func (o *outcomes) get(s *config.Stage) (event.Kind, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kinds[s], time.Since(o.began[s])
}

// apply brings what the stage owns to what the configuration says, and reads
// the outputs.
func (r *creation) apply(ctx context.Context, s *config.Stage) error {
	work, err := r.workspace(ctx, s)
	if err != nil {
		return err
	}
	if err := r.run.Retry(ctx, s.Name, s.Layer, func(bool) error { return r.try(ctx, s, work) }); err != nil {
		return err
	}
	return r.run.ReadOutputs(s)
}

// try is one try at applying a stage, from its inputs to the copy of its state.
func (r *creation) try(ctx context.Context, s *config.Stage, work *run.Workspace) error {
	release, err := r.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	inputs, diags := s.Inputs(r.run.Outputs.Scope(s))
	if diags.HasErrors() {
		return diags
	}
	r.run.MaskInputs(s, inputs)
	override := r.run.Override(s)
	override.Inputs = inputs
	if err := work.Root.Materialise(s.Module, override); err != nil {
		return err
	}
	if err := work.Root.Init(ctx); err != nil {
		return err
	}
	dir := r.run.Cluster.Dir.Stage(s.Name)
	before, err := r.run.ReadState(dir)
	if err != nil {
		return err
	}
	approved, err := r.approve(s, before)
	if err != nil {
		return err
	}
	pending := r.pendingReleases(ctx, s)
	// Before the new record: only the old one may know what is in flight.
	if before, err = r.importInterrupted(ctx, s, work, override, before, pending); err != nil {
		return err
	}
	if err := r.checkNothingToAdopt(ctx, s, approved, before); err != nil {
		return err
	}
	ready, err := dir.Fingerprint().Read()
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Fingerprint().Clear(), run.RecordFirst(r.run, s, work, before), dir.Snapshot()); err != nil {
		return err
	}
	if err := r.importOurs(ctx, s, work); err != nil {
		return err
	}
	var adopted []string
	if !approved.isExact() {
		if adopted, err = adopt(ctx, r.run, s, work); err != nil {
			return err
		}
	}
	err = r.change(ctx, s, work, before, adopted, pending, approved)
	if ready != nil && (errors.As(err, new(*review.UnagreedError)) || errors.As(err, new(*review.UnreviewedError))) {
		err = errors.Join(err, dir.Fingerprint().Write(*ready)) // it is what it was
	}
	// Whatever came of it: a state of which there is no copy could not be restored.
	err = errors.Join(err, dir.Snapshot())
	r.noteMachineIDs(ctx, s)
	return err
}
