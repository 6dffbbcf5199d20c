package diagnose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
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
	for _, g := range s.gates() { // a stage lists first what the others wait for
		for _, closed := range closed {
			switch {
			case g.Name() != closed.Gate:
			case closed.Finding != nil:
				all = append(all, closed.Finding)
			default:
				f := waiting.NewFinding(g, closed)
				f.Inspect = inspectGate(r, s.Stage, g, closed.Err)
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
func closedNow(ctx context.Context, r *run.Run, s Subject) []*waiting.GateError {
	var closed []*waiting.GateError
	for i, err := range run.Each(s.gates(),
		func(g *config.Gate) error { return waiting.CheckGate(ctx, r, s.Stage, g) }) {
		if err != nil {
			closed = append(closed, &waiting.GateError{Gate: s.gates()[i].Name(), Err: err})
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
func closedGates(err error) []*waiting.GateError {
	if closed, ok := err.(*waiting.GateError); ok { //nolint:errorlint // each level is looked at in turn
		return []*waiting.GateError{closed}
	}
	switch wrapping := err.(type) { //nolint:errorlint // likewise
	case interface{ Unwrap() []error }:
		return xslices.FlatMap(wrapping.Unwrap(), closedGates)
	case interface{ Unwrap() error }:
		return closedGates(wrapping.Unwrap())
	}
	return nil
}

// Group makes one finding of those with the same cause: a Pod that does not start closes several gates, and
// needs one fix. A gate whose cause is unknown, or that waits for something that does not exist, follows
// from the stage's first other cause; its stage has no reason of its own to be closed.
func Group(findings []*run.Finding) []*run.Finding {
	var all []*run.Finding
	for _, f := range findings {
		same := slices.IndexFunc(all, func(x *run.Finding) bool { return sameCause(x, f) })
		if same < 0 {
			all = append(all, f)
			continue
		}
		all[same].Same = append(all[same].Same, f.Gate)
		addFiles(all[same], f)
	}
	root := slices.IndexFunc(all, func(f *run.Finding) bool { return !waits(f) })
	if root < 0 {
		root = max(0, slices.IndexFunc(all, func(f *run.Finding) bool { return f.Report.Cause != "" }))
	}
	var roots []*run.Finding
	for i, f := range all {
		if i == root || !waits(f) {
			roots = append(roots, f)
			continue
		}
		all[root].Follow += 1 + len(f.Same)
		addFiles(all[root], f)
	}
	for _, f := range roots {
		if len(f.Same) > 0 {
			f.Report.Waited += fmt.Sprintf("; the same cause closes %d further", len(f.Same))
		}
		if f.Follow > 0 {
			f.Report.Waited += "; " + event.Following(f.Follow)
		}
	}
	return roots
}

// sameCause reports whether two gates are closed for the same object, or else for the same cause.
func sameCause(a, b *run.Finding) bool {
	if a.Found.About != "" && b.Found.About != "" {
		return a.Found.About == b.Found.About
	}
	return a.Report.Cause != "" && a.Report.Cause == b.Report.Cause
}

// waits reports whether a gate may be closed in consequence of another cause. A missing object of an
// installed Helm release is a cause: castle knows its fix.
func waits(f *run.Finding) bool {
	return f.Gate != "" && f.Found.Release == "" && (f.Report.Cause == "" || f.Found.Kind == gate.NotFound)
}

func addFiles(to, from *run.Finding) {
	files := maps.Clone(from.Found.Files)
	if files == nil {
		files = map[string][]byte{}
	}
	maps.Copy(files, to.Found.Files)
	to.Found.Files = files
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
			recorded, _ := ownfile.ReadFile(r.Cluster.Dir.Kubeconfig()) //nolint:errcheck // no cluster yet
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

// inspectGate runs a gate's own diagnosis. last is its last answer.
func inspectGate(r *run.Run, s *config.Stage, g *config.Gate, last error) inspection {
	return func(ctx context.Context) gate.Diagnosis {
		bound, err := waiting.BindGate(r, s, g)
		if err != nil || bound.Diagnose == nil {
			return gate.Diagnosis{}
		}
		return bound.Diagnose(ctx, last)
	}
}

// inspectClosedGates returns the diagnoses of the stage's closed gates.
func inspectClosedGates(r *run.Run, s Subject) []inspection {
	return xslices.Map(s.gates(), func(g *config.Gate) inspection {
		return func(ctx context.Context) gate.Diagnosis {
			last := waiting.CheckGate(ctx, r, s.Stage, g)
			if last == nil {
				return gate.Diagnosis{}
			}
			return inspectGate(r, s.Stage, g, last)(ctx)
		}
	})
}
