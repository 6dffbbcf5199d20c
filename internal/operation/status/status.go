// Package status reports the present state of a cluster: its stages, gates and outputs.
// It changes nothing and starts no Terraform.
package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
)

// The states of a stage.
const (
	Absent      = "absent"      // never created, or destroyed
	Ready       = "ready"       // up to date, every gate open
	Stale       = "stale"       // its inputs have changed since it was ready
	Failed      = "failed"      // its last run failed, or a gate is closed now
	Skipped     = "skipped"     // its last run ended before its last gates: what they wait for failed
	Interrupted = "interrupted" // a run ended in the middle of it
)

// Status is the result of `castle status` for a cluster.
type Status struct {
	Cluster  string             `json:"cluster"`
	Platform string             `json:"platform"`
	Stages   []StageStatus      `json:"stages"`
	Unlisted []cluster.Unlisted `json:"unlisted,omitempty"` // that are recorded and not configured any more
	Damaged  []string           `json:"damaged,omitempty"`  // files that castle reads from their copies
}

// StageStatus is one stage's part of a Status.
type StageStatus struct {
	Name    string       `json:"name"`
	Layer   string       `json:"layer"`
	State   string       `json:"state"`
	Changed []string     `json:"changed,omitempty"` // the parts that make it stale
	Reason  string       `json:"reason,omitempty"`  // why it failed
	Gates   []GateStatus `json:"gates"`

	closed bool // a gate is closed, and nothing else made the stage fail
	err    error
}

// GateStatus is the result of one check of a gate.
type GateStatus struct {
	Name   string `json:"name"`
	Open   bool   `json:"open"`
	Reason string `json:"reason"`
	// Recorded reports that the last run failed for this gate and this reason.
	Recorded bool `json:"-"`
}

// OnlyGates reports whether a gate is closed and no stage failed for another reason.
func (s Status) OnlyGates() bool {
	failed := func(one StageStatus) bool {
		return !one.closed && (one.State == Failed || one.State == Interrupted)
	}
	return slices.ContainsFunc(s.Stages, func(one StageStatus) bool { return one.closed }) &&
		!slices.ContainsFunc(s.Stages, failed)
}

// AllReady reports whether every stage is ready.
func (s Status) AllReady() bool {
	return !slices.ContainsFunc(s.Stages, func(one StageStatus) bool { return one.State != Ready })
}

// Run checks every gate once and compares every stage with its last good apply. It changes nothing and
// starts no Terraform.
func Run(ctx context.Context, c *cluster.Cluster) (Status, error) {
	all := Status{Cluster: c.Config.Name, Platform: c.Config.Platform}
	r := run.Observe(ctx, c)
	states, err := run.LastKnownStates(r)
	if err == nil {
		all.Damaged, err = c.Dir.Repair()
	}
	if err != nil {
		return all, c.MaskError(err)
	}
	if all.Unlisted, err = r.Cluster.UnlistedStages(); err != nil {
		return all, c.MaskError(err)
	}
	all.Stages = run.Each(c.Config.Stages, func(s *config.Stage) StageStatus {
		one, err := statusOf(ctx, r, s, states[s])
		one.err = err
		return one
	})
	for _, one := range all.Stages {
		err = errors.Join(err, one.err)
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx) // an interrupted status is incomplete
	}
	return all, c.MaskError(err)
}

func statusOf(ctx context.Context, r *run.Run, s *config.Stage, st *state.State) (StageStatus, error) {
	one := StageStatus{Name: s.Name, Layer: s.Layer, State: Absent, Gates: []GateStatus{}}
	dir := r.Cluster.Dir.Stage(s.Name)
	rec, err := dir.Record()
	if errors.Is(err, fs.ErrNotExist) {
		return one, nil
	}
	if err != nil {
		return one, err
	}
	old, err := dir.Fingerprint().Read()
	if err != nil {
		return one, err
	}
	var recorded runOutcome
	if old == nil {
		one.State, recorded = lastRun(r, rec)
		one.Reason = recorded.failure
		if one.State == Interrupted {
			one.Reason = r.Cluster.Masker.Hide(recovery.Summary(dir, st))
		}
	} else if one.Changed, err = run.Changed(r, s, old); err != nil { // an input is no longer known
		one.State, one.Reason = Stale, r.Cluster.Masker.Hide(err.Error())
	} else if one.State = Ready; len(one.Changed) > 0 {
		one.State = Stale
	}
	if st.Notice != "" { // it cannot be read
		one.State, one.Reason = Failed, r.Cluster.Masker.Hide(st.Notice)
	}
	if !st.Exists {
		return one, nil
	}
	for i, err := range run.Each(s.Gates, func(g *config.Gate) error { return run.CheckGate(ctx, r, s, g) }) {
		g := GateStatus{Name: s.Gates[i].Name(), Open: err == nil}
		if err != nil {
			g.Reason = r.Cluster.Masker.Hide(err.Error())
			g.Recorded = recorded.closed[g.Name] == g.Reason
			one.closed = st.Notice == "" && (old != nil || len(recorded.closed) > 0)
			if one.State == Ready {
				one.State = Failed
			}
		}
		one.Gates = append(one.Gates, g)
	}
	return one, nil
}

// lastRun reads how the last run on an unready stage left it: failed with a reason, interrupted, or still
// at work.
func lastRun(r *run.Run, rec state.Record) (string, runOutcome) {
	if held := r.Cluster.Dir.Holder(); held != nil {
		// A destroy keeps a stage's record, so that only its journal names the stage.
		if outcome(r, held.Run, rec.Name).started || held.Run == rec.Run {
			text := fmt.Sprintf("run %s (process %d on %s) is working on it", held.Run, held.PID, held.Host)
			return Stale, runOutcome{failure: text}
		}
	}
	runs, err := r.Cluster.Dir.Runs()
	if err != nil {
		return Interrupted, runOutcome{}
	}
	for _, id := range runs {
		found := outcome(r, id, rec.Name)
		switch {
		case found.skipped:
			return Skipped, found
		case found.failure != "":
			return Failed, found
		case found.started:
			return Interrupted, runOutcome{}
		}
	}
	return Interrupted, runOutcome{}
}

// runOutcome is a stage's result in one run, from its journal.
type runOutcome struct {
	started bool
	skipped bool
	failure string            // why it failed or was skipped; empty if neither
	closed  map[string]string // last reason of each gate that did not open
}

// outcome reads a stage's result from the journal of a run.
func outcome(r *run.Run, run, stage string) runOutcome {
	found := runOutcome{closed: map[string]string{}}
	events, err := r.Cluster.Dir.Run(run).Events()
	if err != nil {
		return runOutcome{}
	}
	for _, e := range events {
		if e.Stage != stage {
			continue
		}
		switch e.Kind {
		case event.StageStarted:
			found.started = true
		case event.GateClosed:
			found.closed[e.Gate] = e.Text
		case event.GateOpen:
			delete(found.closed, e.Gate)
		case event.StageFailed:
			found.started, found.failure = true, e.Text
			return found
		case event.StageSkipped:
			if found.skipped = found.started; found.skipped { // one that never began is as it was before
				found.failure = e.Text
			}
		}
	}
	return found
}

// OutputValue is one output of a layer.
type OutputValue struct {
	Layer, Stage, Name string
	Sensitive          bool
	Value              cty.Value
}

// Outputs returns the outputs of every stage, by layer and name.
func Outputs(c *cluster.Cluster) ([]OutputValue, error) {
	var all []OutputValue
	for _, s := range c.Config.Stages {
		st, err := c.Dir.Stage(s.Name).State()
		if err != nil {
			return nil, err
		}
		start := len(all)
		for name, out := range st.Outputs {
			all = append(all, OutputValue{
				Layer: s.Layer, Stage: s.Name, Name: name, Value: out.Value,
				Sensitive: out.Sensitive || s.Outputs[name].Sensitive,
			})
		}
		slices.SortFunc(all[start:], func(a, b OutputValue) int { return strings.Compare(a.Name, b.Name) })
	}
	return all, nil
}

// Configs returns the paths of the platform's kubeconfig and talosconfig. The error for a missing one
// names the command that creates it.
func Configs(c *cluster.Cluster) (kubeconfig, talosconfig string, err error) {
	for _, path := range []string{c.Dir.Kubeconfig(), c.Dir.Talosconfig()} {
		if _, err := os.Stat(path); err != nil {
			return "", "", &cluster.UsageError{Message: fmt.Sprintf(
				"%s has no kubeconfig yet; create it with `castle create %s`", c.Name(), c.Config.Name)}
		}
	}
	return c.Dir.Kubeconfig(), c.Dir.Talosconfig(), nil
}
