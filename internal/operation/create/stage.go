package create

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/survival"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
)

// stage makes one stage ready, or finds that it is. With deferred gates it is not
// ready before another task has waited for those.
func (c *creation) stage(ctx context.Context, s *config.Stage, deferred bool) error {
	if s.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, s.Timeout, run.TimeoutError{After: s.Timeout})
		defer stop()
	}
	c.begin(ctx, s)
	if err := survival.Begin(ctx, c.run, s); err != nil {
		return err
	}
	upToDate, err := c.upToDate(ctx, s)
	switch {
	case err != nil:
		return err
	case upToDate:
		c.progress[s].outcome, c.progress[s].began = event.StageUpToDate, time.Now()
		if err := c.run.Restore(); err != nil {
			return err
		}
	case s.Volatile:
		return c.refreshStage(ctx, s)
	default:
		if err := c.raise(ctx, s); err != nil {
			return err
		}
	}
	if deferred {
		return nil
	}
	return c.settle(ctx, s)
}

// waitDeferredGates waits for the gates that need other stages, and settles the stage.
func (c *creation) waitDeferredGates(ctx context.Context, s *config.Stage, gates []*config.Gate) error {
	if err := waiting.ForGates(ctx, c.run, s, gates); err != nil {
		return err
	}
	return c.settle(ctx, s)
}

// raise applies a stage and waits for its immediate gates.
func (c *creation) raise(ctx context.Context, s *config.Stage) error {
	for _, need := range s.Needs {
		if need.Volatile && !slices.Contains(c.read, need) {
			if err := c.refreshStage(ctx, need); err != nil {
				return fmt.Errorf("read %s again: %w", need.Name, err)
			}
		}
	}
	c.progress[s].outcome, c.progress[s].began = event.StageReady, time.Now()
	c.run.Emit(event.Event{Kind: event.StageStarted, Layer: s.Layer, Stage: s.Name})
	work, err := c.workspace(ctx, s)
	if err != nil {
		return err
	}
	err = c.run.Retry(ctx, s.Name, s.Layer, func(bool) error {
		// A provider may have cached the failure that the next try is for, and gates may take minutes.
		defer work.Root.StopProviders()
		a := &attempt{creation: c, run: c.run, stage: s, work: work, dir: c.run.Cluster.Dir.Stage(s.Name)}
		return a.try(ctx)
	})
	if err != nil {
		return err
	}
	if err := c.run.ReadOutputs(s); err != nil {
		return err
	}
	if c.found != nil && founds(s) {
		if err := c.found(ctx); err != nil {
			return err
		}
	}
	return waiting.ForGates(ctx, c.run, s, s.ImmediateGates())
}

// refreshStage reads a volatile stage again, once in a run and only when something
// is about to use it: a token may have been rotated.
func (c *creation) refreshStage(ctx context.Context, s *config.Stage) error {
	p := c.progress[s]
	p.refresh.Do(func() {
		if p.refreshErr = c.raise(ctx, s); p.refreshErr == nil {
			p.refreshErr = c.settle(ctx, s)
		}
	})
	return p.refreshErr
}

// settle ends a stage whose gates are all open: its fingerprint and its objects mark it as up to date.
func (c *creation) settle(ctx context.Context, s *config.Stage) error {
	p := c.progress[s]
	if p.outcome != event.StageUpToDate {
		if err := survival.First(ctx, c.run, s); err != nil {
			return err
		}
		if err := applied.RecordRevisions(ctx, c.run, s); err != nil {
			return err
		}
		if err := applied.RecordGates(c.run, s); err != nil {
			return err
		}
		if len(s.InCluster) > 0 {
			if err := applied.RecordReady(c.run, s); err != nil {
				return err
			}
		}
		print, err := applied.Fingerprint(c.run, s)
		if err != nil {
			return err
		}
		if err := c.run.Cluster.Dir.Stage(s.Name).Fingerprint().Write(*print); err != nil {
			return err
		}
	}
	took := time.Since(p.began).Seconds()
	c.run.Emit(event.Event{Kind: p.outcome, Layer: s.Layer, Stage: s.Name, Seconds: took})
	return nil
}

// upToDate reports whether a stage's fingerprint and its objects are unchanged and its gates are open now. In
// either case it reads the recorded outputs.
func (c *creation) upToDate(ctx context.Context, s *config.Stage) (bool, error) {
	dir := c.run.Cluster.Dir.Stage(s.Name)
	st, err := c.run.ReadRecorded(s)
	if err != nil || !st.Exists {
		return false, err
	}
	old, err := dir.Fingerprint().Read()
	if err != nil || old == nil || c.refresh || c.issuers[s.Name] != nil {
		return false, err
	}
	if _, err := c.workspace(ctx, s); err != nil {
		return false, err
	}
	if changed, err := applied.Changed(c.run, s, old); err != nil || len(changed) > 0 {
		return false, err
	}
	if outdated, err := applied.Outdated(c.run, s, st); err != nil || len(outdated) > 0 {
		return false, err
	}
	if due, err := c.saved.isDue(s); err != nil || due {
		return false, err
	}
	drift, closed, err := applied.Look(ctx, c.run, s, st)
	if err != nil {
		return false, err
	}
	if !drift.None() {
		c.run.Emit(event.Event{Kind: event.StageDrifted, Layer: s.Layer, Stage: s.Name, Text: drift.String()})
	}
	c.reportClosed(s, closed)
	return drift.None() && closed == nil, nil
}

// reportClosed reports a gate that is closed; nil is none.
func (c *creation) reportClosed(s *config.Stage, closed *waiting.GateError) {
	if closed != nil {
		c.run.Emit(event.Event{Kind: event.GateClosed, Layer: s.Layer, Stage: s.Name, Gate: closed.Gate,
			Text: closed.Error()})
	}
}

// requireReady checks a stage that was not selected but is needed.
func (c *creation) requireReady(ctx context.Context, s *config.Stage) error {
	st, err := c.run.ReadRecorded(s)
	if err != nil {
		return err
	}
	if !st.Exists {
		return cluster.Usagef("needed but not selected, and never created; create it first: "+
			"castle create %s --to %s", c.run.Cluster.Config.Name, s.Name)
	}
	if closed := waiting.FirstClosedGate(ctx, c.run, s, s.Gates); closed != nil {
		c.reportClosed(s, closed)
		return fmt.Errorf("needed but not selected, and not ready: gate %s: %w", closed.Gate, closed)
	}
	return c.run.Restore()
}

// earlyPreflight runs a preflight before any stage has changed anything. It may fail
// because a volatile secret was rotated, so that is read again once before it counts.
func (c *creation) earlyPreflight(ctx context.Context, s *config.Stage, p *config.Preflight) error {
	var found gate.Inspection
	err := c.run.Step(s.Name, s.Layer, "preflight", func() (err error) {
		if found, err = waiting.Inspect(ctx, c.run, s, p); err == nil || ctx.Err() != nil {
			return err
		}
		for _, need := range p.Needs {
			if need.Volatile {
				if e := c.refreshStage(ctx, need); e != nil {
					return errors.Join(err, e)
				}
				found, err = waiting.Inspect(ctx, c.run, s, p)
			}
		}
		return err
	})
	if err != nil {
		return run.NoAnswer(p.Name(), err)
	}
	if err := waiting.Refuse(c.run, s, p, found, c.adopts); err != nil {
		return err
	}
	if err := c.checkUnrecorded(ctx, s, p, found.Ours); err != nil {
		return err
	}
	for _, own := range found.Ours {
		if c.adopts || own.Borrowed {
			c.run.Notice(fmt.Sprintf("%s will be adopted as %s", own.Import.What, own.Import.Address))
			continue
		}
		c.run.Notice(own.Import.What + " was made by a run that was killed; it will be taken over")
	}
	return waiting.Advise(ctx, c.run, s, p)
}
