package castle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/state"
)

// stage makes one stage ready, or finds that it is. judgedLate says that gates
// remain which another task judges; the stage is not ready before them.
func (r *creation) stage(ctx context.Context, s *config.Stage, judgedLate bool) error {
	if s.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, s.Timeout, timeoutError{s.Timeout})
		defer stop()
	}
	current, err := r.current(ctx, s)
	switch {
	case err != nil:
		return err
	case current:
		r.outcomes.set(s, event.StageUpToDate)
	case s.Volatile:
		return r.renew(ctx, s)
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
	if err := r.renewNeeds(ctx, s); err != nil {
		return err
	}
	r.outcomes.set(s, event.StageReady)
	r.emit(event.Event{Kind: event.StageStarted, Layer: s.Layer, Stage: s.Name})
	if err := r.apply(ctx, s); err != nil {
		return err
	}
	return r.judge(ctx, s, earlyGates(s))
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
		if err := r.dir.Stage(s.Name).Fingerprint().Write(*print); err != nil {
			return err
		}
	}
	r.emit(event.Event{Kind: kind, Layer: s.Layer, Stage: s.Name, Seconds: took.Seconds()})
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

type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return "timed out after " + e.after.String() }

// apply brings what the stage owns to what the configuration says, and reads
// the outputs.
func (r *creation) apply(ctx context.Context, s *config.Stage) error {
	work, err := r.workshop(ctx, s)
	if err != nil {
		return err
	}
	if err := r.persist(ctx, s.Name, s.Layer, func(bool) error { return r.try(ctx, s, work) }); err != nil {
		return err
	}
	return r.hear(s)
}

// try is one try at applying a stage, from its inputs to the copy of its state.
func (r *creation) try(ctx context.Context, s *config.Stage, work *workshop) error {
	release, err := r.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	inputs, diags := s.Inputs(r.said.scope(s))
	if diags.HasErrors() {
		return diags
	}
	r.hide(s, inputs)
	override := r.override(s)
	override.Inputs = inputs
	if err := work.root.Materialise(s.Module, override); err != nil {
		return err
	}
	if err := work.root.Init(ctx); err != nil {
		return err
	}
	dir := r.dir.Stage(s.Name)
	before, err := r.readState(dir)
	if err != nil {
		return err
	}
	approved, err := r.approve(s, before)
	if err != nil {
		return err
	}
	pending := r.pendingReleases(ctx, s)
	// Before the new record: only the old one may know what is in flight.
	if before, err = r.takeIn(ctx, s, work, override, before, pending); err != nil {
		return err
	}
	if err := r.unadopted(ctx, s, approved, before); err != nil {
		return err
	}
	ready, err := dir.Fingerprint().Read()
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Fingerprint().Clear(), r.recordFirst(s, work, before), dir.Snapshot()); err != nil {
		return err
	}
	if err := r.importOurs(ctx, s, work); err != nil {
		return err
	}
	var adopted []string
	if !approved.isExact() {
		if adopted, err = r.adopt(ctx, s, work); err != nil {
			return err
		}
	}
	err = r.change(ctx, s, work, before, adopted, pending, approved)
	if ready != nil && (errors.As(err, new(*UnagreedError)) || errors.As(err, new(*UnreviewedError))) {
		err = errors.Join(err, dir.Fingerprint().Write(*ready)) // it is what it was
	}
	// Whatever came of it: a state of which there is no copy could not be restored.
	err = errors.Join(err, dir.Snapshot())
	r.mark(ctx, s)
	return err
}

// hide makes the stage's sensitive inputs secret in everything that is written from now on.
func (r *run) hide(s *config.Stage, inputs map[string]cty.Value) {
	for name, v := range inputs {
		if s.Variables[name].Sensitive {
			r.masker.Add(stringsIn(v)...)
		}
	}
}

// readState reads a stage's state and tells the user what had to be repaired.
func (r *run) readState(dir *state.Stage) (*state.State, error) {
	st, err := dir.State()
	if err != nil {
		return nil, err
	}
	if st.Notice != "" {
		r.notice(st.Notice)
	}
	return st, nil
}

// hear reads a stage's outputs after it was applied.
func (r *run) hear(s *config.Stage) error {
	st, err := r.readState(r.dir.Stage(s.Name))
	if err != nil {
		return err
	}
	r.said.put(s, withNulls(s, st.Outputs))
	if s.Layer == platformLayer {
		return r.export()
	}
	return nil
}
