package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/diagnose"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
)

// GateOptions select gates and how to check them.
type GateOptions struct {
	Of      string        // a stage's or a layer's name; empty: every stage's
	Wait    bool          // until each is open or timed out; else check each once
	Timeout time.Duration // how long Wait waits for each; 0: the gate's own timeout
}

// GateReport is the result of `castle gate` for a cluster.
type GateReport struct {
	Cluster  string       `json:"cluster"`
	Platform string       `json:"platform"`
	Open     bool         `json:"open"` // no stage is missing and no gate closed
	Stages   []StageGates `json:"stages"`
}

// StageGates is one stage's part of a GateReport.
type StageGates struct {
	Name  string `json:"name"`
	Layer string `json:"layer"`
	// Missing explains why castle did not check the gates: the stage has no state, or an unreadable one.
	Missing string       `json:"missing,omitempty"`
	Gates   []GateStatus `json:"gates"`
}

// Gates checks the gates of the selected stages in parallel. A stage that was never created counts as closed,
// and Gates does not wait for it. It starts no Terraform, takes no lock and keeps no run. A wait may trigger
// a reconcile in the cluster, which is harmless beside a create.
func Gates(ctx context.Context, c *cluster.Cluster, o GateOptions) (GateReport, error) {
	report := GateReport{Cluster: c.Config.Name, Platform: c.Config.Platform, Open: true}
	stages := c.Config.Stages
	if o.Of != "" {
		found, err := cluster.Find("gate", o.Of, cluster.Refs(stages))
		if err != nil {
			return report, unknownGates(c, o.Of, err)
		}
		stages = nil
		for _, i := range found {
			stages = append(stages, c.Config.Stages[i])
		}
	}
	r := run.Observe(ctx, c)
	states, err := r.LastKnownStates()
	if err != nil {
		return report, c.MaskError(err)
	}
	report.Stages = run.Each(stages, func(s *config.Stage) StageGates {
		return gatesOf(ctx, r, s, states[s], o)
	})
	if ctx.Err() != nil {
		return report, context.Cause(ctx)
	}
	report.Open = report.Closed() == nil
	return report, nil
}

// unknownGates returns the error for a name without gates to check; unknown unless it is a disabled stage's.
func unknownGates(c *cluster.Cluster, name string, unknown error) error {
	for _, s := range c.Config.Disabled {
		if s.Name != name {
			continue
		}
		text := fmt.Sprintf("gate: stage %s is disabled, and no stage asks its gates", name)
		if s.Delegate != nil {
			text = fmt.Sprintf("gate: stage %s is disabled, and stage %s asks its gates: castle gate %s %s",
				name, s.Delegate.Name, c.Config.Name, s.Delegate.Name)
		}
		return &cluster.UsageError{Message: text}
	}
	return unknown
}

// Closed returns a *ClosedError unless everything is open.
func (g GateReport) Closed() error {
	all := &ClosedError{}
	for _, s := range g.Stages {
		if s.Missing != "" {
			all.Missing = append(all.Missing, s.Name)
			continue
		}
		all.Asked += len(s.Gates)
		for _, one := range s.Gates {
			if !one.Open {
				all.Closed++
			}
		}
	}
	if all.Closed == 0 && len(all.Missing) == 0 {
		return nil
	}
	return all
}

func gatesOf(ctx context.Context, r *run.Run, s *config.Stage, st *state.State, o GateOptions) StageGates {
	one := StageGates{Name: s.Name, Layer: s.Layer, Gates: []GateStatus{}}
	closed := make([]error, len(s.Gates))
	switch {
	case !st.Exists:
		one.Missing = cmp.Or(r.Cluster.Masker.Hide(st.Notice), fmt.Sprintf(
			"never created; create it with `castle create %s --to %s`", r.Cluster.Config.Name, s.Name))
		if o.Wait {
			r.Notice(fmt.Sprintf("stage %s: %s", s.Name, one.Missing))
		}
	case o.Wait && len(s.Gates) > 0:
		closed = waitAll(ctx, r, s, o.Timeout)
	default:
		closed = run.Each(s.Gates, func(g *config.Gate) error { return waiting.CheckGate(ctx, r, s, g) })
	}
	for i, g := range s.Gates {
		answer := GateStatus{Name: g.Name(), Open: one.Missing == "" && closed[i] == nil, Reason: one.Missing}
		if closed[i] != nil {
			text := r.Cluster.Masker.Hide(closed[i].Error())
			answer.Reason = strings.TrimPrefix(text, "gate "+g.Name()+": ")
		}
		one.Gates = append(one.Gates, answer)
	}
	return one
}

// waitAll waits for a stage's gates as a create does, and returns the error of each. It reports their
// diagnoses, but has no run to keep them in.
func waitAll(ctx context.Context, r *run.Run, s *config.Stage, timeout time.Duration) (closed []error) {
	err := r.GatesStep(s.Name, s.Layer, len(s.Gates), func() error {
		closed = run.Each(s.Gates, func(g *config.Gate) error {
			timed := *g
			timed.Policy.Timeout = cmp.Or(timeout, g.Policy.Timeout)
			return waiting.ForGate(ctx, r, s, &timed)
		})
		return errors.Join(closed...)
	})
	if ctx.Err() != nil {
		return closed
	}
	subject := diagnose.Subject{Layer: s.Layer, Name: s.Name, Stage: s}
	for _, f := range diagnose.Look(ctx, r, subject, err) {
		e := event.Event{Kind: event.Diagnosed, Layer: s.Layer, Stage: s.Name, Gate: f.Gate}
		e.Diagnosis = &f.Report
		r.Emit(e)
	}
	return closed
}

// ClosedError counts the gates and stages that are not open.
type ClosedError struct {
	Closed, Asked int      // gates
	Missing       []string // stages whose gates could not be checked
}

func (e *ClosedError) Error() string {
	var parts []string
	switch {
	case e.Closed == 1:
		parts = append(parts, fmt.Sprintf("1 of %d gates is closed", e.Asked))
	case e.Closed > 1:
		parts = append(parts, fmt.Sprintf("%d of %d gates are closed", e.Closed, e.Asked))
	}
	if len(e.Missing) > 0 {
		parts = append(parts, "could not be asked: "+strings.Join(e.Missing, ", "))
	}
	return strings.Join(parts, "; ")
}
