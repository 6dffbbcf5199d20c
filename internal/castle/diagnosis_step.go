package castle

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
)

// ran says which step of Terraform's did not succeed.
func ran(stage string, step *stepError) event.Diagnosis {
	return event.Diagnosis{
		Waited: fmt.Sprintf("Terraform, to %s stage %s", step.step, stage),
		Seen:   strings.Join(strings.Fields(step.err.Error()), " "), Since: time.Now(),
	}
}

// stepInquiry looks for what made Terraform fail: in its own words first, then,
// if the cluster can be reached, in the stage's gates and in what is wrong in the
// cluster as a whole. These two are only told as the cause if Terraform has
// waited in vain: after another failure they are closed and wrong because of it.
func (r *run) stepInquiry(s subject, step *stepError) func(context.Context) gate.Diagnosis {
	return func(ctx context.Context) gate.Diagnosis {
		words := step.err.Error()
		cause, look := stepCause(words)
		d := gate.Diagnosis{Cause: cause, Look: look, Files: map[string][]byte{}}
		target := r.said.target()
		if len(target.Kubeconfig) == 0 {
			target.Kubeconfig, _ = os.ReadFile(r.dir.Kubeconfig()) //nolint:errcheck // no cluster yet, or none any more
		}
		if len(target.Kubeconfig) == 0 {
			return d
		}
		inquiries := append(r.closedInquiries(s), func(ctx context.Context) gate.Diagnosis {
			found := kube.Survey(ctx, target)
			if s.layer == platformLayer || s.layer == secretsLayer {
				found.Cause = "" // what these wait for is not in the cluster
			}
			return found
		})
		around := make([]gate.Diagnosis, len(inquiries))
		var all sync.WaitGroup
		for i, inquire := range inquiries {
			all.Go(func() { around[i] = inquire(ctx) })
		}
		all.Wait()
		for _, one := range around {
			maps.Copy(d.Files, one.Files)
			if d.Cause == "" && inVain(words) {
				d.Cause, d.Look, d.Release = one.Cause, one.Look, one.Release
			}
		}
		return d
	}
}

// closedInquiries are the stage's gates, each of which looks round if it is closed.
func (r *run) closedInquiries(s subject) []func(context.Context) gate.Diagnosis {
	var all []func(context.Context) gate.Diagnosis
	for _, g := range s.gates() {
		all = append(all, func(ctx context.Context) gate.Diagnosis {
			if r.askOne(ctx, s.stage, g) == nil {
				return gate.Diagnosis{}
			}
			return r.gateInquiry(s.stage, g)(ctx)
		})
	}
	return all
}

// inVain reports whether Terraform gave up waiting, rather than being refused.
func inVain(words string) bool {
	words = strings.ToLower(words)
	for _, sign := range []string{"deadline exceeded", "timed out", "timeout", "would exceed context deadline", "not ready", "did not finish"} {
		if strings.Contains(words, sign) {
			return true
		}
	}
	return false
}
