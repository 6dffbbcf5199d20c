package diagnose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

type inspection = func(context.Context) gate.Diagnosis

// findings lists the parts of a stage's error that castle can diagnose.
func findings(ctx context.Context, r *run.Run, s Subject, err error) []*run.Finding {
	closed := closedGates(err)
	if out := (run.TimeoutError{}); len(closed) == 0 && errors.As(err, &out) {
		closed = closedNow(ctx, r, s) // the stage's time was up, not that of a gate
	}
	var all []*run.Finding
	for _, closed := range closed {
		for _, g := range s.gates() {
			switch {
			case g.Name() != closed.Gate:
			case closed.Finding != nil:
				all = append(all, closed.Finding)
			default:
				f := run.NewFinding(g, closed)
				f.Inspect = inspectGate(r, s.Stage, g)
				all = append(all, f)
			}
		}
	}
	if step := (*run.StepError)(nil); len(all) == 0 && errors.As(err, &step) {
		all = append(all, &run.Finding{
			Report: event.Diagnosis{
				Waited: fmt.Sprintf("Terraform, to %s stage %s", step.Step, s.Name),
				Seen:   strings.Join(strings.Fields(step.Err.Error()), " "), Since: time.Now(),
			},
			Inspect: inspectStep(r, s, step),
		})
	}
	return all
}

// closedNow checks a stage's gates once more.
func closedNow(ctx context.Context, r *run.Run, s Subject) []*run.GateError {
	var closed []*run.GateError
	for i, err := range run.Each(s.gates(),
		func(g *config.Gate) error { return run.CheckGate(ctx, r, s.Stage, g) }) {
		if err != nil {
			closed = append(closed, &run.GateError{Gate: s.gates()[i].Name(), Err: err})
		}
	}
	return closed
}

func (s Subject) gates() []*config.Gate {
	if s.Stage == nil {
		return nil
	}
	return s.Stage.Gates
}

// closedGates returns the gates that an error joins.
func closedGates(err error) []*run.GateError {
	if closed, ok := err.(*run.GateError); ok { //nolint:errorlint // each level is looked at in turn
		return []*run.GateError{closed}
	}
	switch wrapping := err.(type) { //nolint:errorlint // likewise
	case interface{ Unwrap() []error }:
		var all []*run.GateError
		for _, e := range wrapping.Unwrap() {
			all = append(all, closedGates(e)...)
		}
		return all
	case interface{ Unwrap() error }:
		return closedGates(wrapping.Unwrap())
	}
	return nil
}

// Group makes one finding of those with the same cause: a Pod that does not start closes several gates, and
// needs one fix.
func Group(findings []*run.Finding) []*run.Finding {
	var all []*run.Finding
	for _, f := range findings {
		same := slices.IndexFunc(all, func(x *run.Finding) bool { return x.Report.Cause == f.Report.Cause })
		if f.Report.Cause == "" || same < 0 {
			all = append(all, f)
			continue
		}
		first := all[same]
		first.Report.Waited += "; gate " + f.Gate + " waits for the same"
		files := map[string][]byte{}
		maps.Copy(files, f.Found.Files)
		maps.Copy(files, first.Found.Files)
		first.Found.Files = files
	}
	return all
}

// inspectStep looks for the cause of a failed step: first in Terraform's own text, then in the stage's
// gates and the cluster. The latter two count as a cause only if Terraform timed out: after any other
// failure they are its effects.
func inspectStep(r *run.Run, s Subject, step *run.StepError) func(context.Context) gate.Diagnosis {
	return func(ctx context.Context) gate.Diagnosis {
		if fix := cluster.StoreFix(step.Err); fix != "" { // known exactly: a full disk is the store's
			return gate.Diagnosis{Cause: fix}
		}
		text := step.Err.Error()
		d := gate.Diagnosis{Files: map[string][]byte{}}
		d.Cause, d.Look = terraform.CauseOf(text)
		target := r.Outputs.Target()
		if len(target.Kubeconfig) == 0 {
			recorded, _ := os.ReadFile(r.Cluster.Dir.Kubeconfig()) //nolint:errcheck // no cluster yet
			target.Kubeconfig = recorded
		}
		if len(target.Kubeconfig) == 0 {
			return d
		}
		inspections := append(inspectClosedGates(r, s), func(ctx context.Context) gate.Diagnosis {
			found := kube.Survey(ctx, target)
			if s.Layer == cluster.PlatformLayer || s.Layer == cluster.SecretsLayer {
				found.Cause = "" // these layers wait for nothing in the cluster
			}
			return found
		})
		for _, one := range run.Each(inspections,
			func(inspect inspection) gate.Diagnosis { return inspect(ctx) }) {
			maps.Copy(d.Files, one.Files)
			if d.Cause == "" && terraform.GaveUpWaiting(text) {
				d.Cause, d.Look, d.Release = one.Cause, one.Look, one.Release
			}
		}
		return d
	}
}

// inspectGate runs a gate's own diagnosis.
func inspectGate(r *run.Run, s *config.Stage, g *config.Gate) inspection {
	return func(ctx context.Context) gate.Diagnosis {
		bound, err := run.BindGate(r, s, g)
		if err != nil || bound.Diagnose == nil {
			return gate.Diagnosis{}
		}
		return bound.Diagnose(ctx)
	}
}

// inspectClosedGates returns the diagnoses of the stage's closed gates.
func inspectClosedGates(r *run.Run, s Subject) []inspection {
	var all []inspection
	for _, g := range s.gates() {
		all = append(all, func(ctx context.Context) gate.Diagnosis {
			if run.CheckGate(ctx, r, s.Stage, g) == nil {
				return gate.Diagnosis{}
			}
			return inspectGate(r, s.Stage, g)(ctx)
		})
	}
	return all
}
