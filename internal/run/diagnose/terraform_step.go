package diagnose

import (
	"context"
	"fmt"
	"maps"
	"os"
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

// stepReport describes the Terraform step that failed.
func stepReport(stage string, step *run.StepError) event.Diagnosis {
	return event.Diagnosis{
		Waited: fmt.Sprintf("Terraform, to %s stage %s", step.Step, stage),
		Seen:   strings.Join(strings.Fields(step.Err.Error()), " "), Since: time.Now(),
	}
}

// inspectStep looks for the cause of a failed step: first in Terraform's own text, then in the stage's
// gates and the cluster. The latter two count as a cause only if Terraform timed out: after any other
// failure they are its effects.
func inspectStep(r *run.Run, s Subject, step *run.StepError) func(context.Context) gate.Diagnosis {
	return func(ctx context.Context) gate.Diagnosis {
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

type inspection = func(context.Context) gate.Diagnosis

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
