package create

import (
	"context"
	"fmt"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// current reports whether a stage needs nothing: what it depends on is as it was
// when it last became ready, and its gates are open now. Its recorded outputs
// are known afterwards, current or not.
func (r *creation) upToDate(ctx context.Context, s *config.Stage) (bool, error) {
	dir := r.run.Cluster.Dir.Stage(s.Name)
	st, err := r.run.ReadState(dir)
	if err != nil || !st.Exists {
		return false, err
	}
	r.run.Outputs.Set(s, run.RecordedOutputs(r.run.Cluster, s, st))
	old, err := dir.Fingerprint().Read()
	if err != nil || old == nil || r.refresh {
		return false, err
	}
	now, err := r.fingerprint(ctx, s)
	if err != nil {
		return false, err
	}
	if changed := now.Changed(old); len(changed) > 0 {
		return false, nil
	}
	if closed := run.FirstClosedGate(ctx, r.run, s, run.ImmediateGates(s)); closed != nil {
		r.run.Emit(event.Event{Kind: event.GateClosed, Layer: s.Layer, Stage: s.Name, Gate: closed.Gate, Text: closed.Error()})
		return false, nil
	}
	return true, nil
}

// renewNeeds reads the volatile stages that s needs again, once in a run and
// only now that something will use them: a token may have been rotated.
func (r *creation) refreshNeeds(ctx context.Context, s *config.Stage) error {
	for _, need := range s.Needs {
		if need.Volatile {
			if err := r.refreshStage(ctx, need); err != nil {
				return fmt.Errorf("read %s again: %w", need.Name, err)
			}
		}
	}
	return nil
}

func (r *creation) refreshStage(ctx context.Context, s *config.Stage) error {
	one := r.refreshed[s]
	one.once.Do(func() {
		if one.err = r.raise(ctx, s); one.err == nil {
			one.err = r.settle(ctx, s)
		}
	})
	return one.err
}

// requireReady asks a stage that was not selected but is needed whether it is
// ready. It is never taken for granted.
func (r *creation) requireReady(ctx context.Context, s *config.Stage) error {
	st, err := r.run.ReadState(r.run.Cluster.Dir.Stage(s.Name))
	if err != nil {
		return err
	}
	if !st.Exists {
		return &cluster.UsageError{Message: fmt.Sprintf("needed but not selected, and never created; "+
			"raise it first: castle create %s --to %s", r.run.Cluster.Config.Name, s.Name)}
	}
	r.run.Outputs.Set(s, run.RecordedOutputs(r.run.Cluster, s, st))
	if closed := run.FirstClosedGate(ctx, r.run, s, s.Gates); closed != nil {
		return fmt.Errorf("needed but not selected, and not ready: gate %s: %w", closed.Gate, closed)
	}
	return nil
}

// fingerprint digests everything that a stage's last good apply depended on.
func (r *creation) fingerprint(ctx context.Context, s *config.Stage) (*state.Fingerprint, error) {
	work, err := r.workspace(ctx, s)
	if err != nil {
		return nil, err
	}
	return run.Fingerprint(r.run, s, work.Root)
}
