package diagnose

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// known is a failure that has been met before: by which words Terraform's error
// is recognised (all of them), what it means, and the command to look further.
type knownFailure struct {
	signs       []string
	cause, look string
}

// failureList is what castle knows of failed steps, the most telling first. What
// passes by itself is recognised in terraform.FailureOf, and explained below.
func failureList() []knownFailure {
	return []knownFailure{
		{
			[]string{"cannot re-use a name"},
			"a Helm release of this name is in the cluster and not in Terraform's state: an install failed after it had begun, or somebody else installed it; uninstall it there, or import it",
			"kubectl get secrets -A -l owner=helm -L name,status,version",
		},
		{
			[]string{"another operation", "in progress"},
			"another Helm is at work on this release, or was killed at it; the next create removes what a killed one of castle's left",
			"kubectl get secrets -A -l owner=helm -L name,status,version",
		},
		{
			[]string{"failed calling webhook"},
			"an admission webhook stands in the way and does not answer: whatever serves it is not ready, although what it guards is already being made",
			"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
		},
		{
			[]string{"denied the request"},
			"an admission webhook has judged the object and refuses it: its message says what is wrong with it", "",
		},
		{
			[]string{"no matches for kind"},
			"the API does not know this kind yet: the operator whose CRDs define it has to be ready first, so the stage needs the operator's", "kubectl get crds",
		},
		{
			[]string{"isn't valid for cluster"},
			"the API does not know this kind yet: the operator whose CRDs define it has to be ready first, so the stage needs the operator's", "kubectl get crds",
		},
		{
			[]string{"violates podsecurity"},
			"the namespace's Pod Security level forbids these Pods: the namespace needs the label pod-security.kubernetes.io/enforce=privileged", "kubectl get namespaces --show-labels",
		},
		{[]string{"exceeded quota"}, "the namespace's quota is used up", "kubectl get resourcequotas -A"},
		{
			[]string{"output array was not large enough"},
			"the key that encrypts the cluster's secrets at rest (secretbox) is not the one that they were written with: it can only be set when the cluster is first raised", "",
		},
		{
			[]string{"secret", "already exist"},
			"the secret is in Infisical and not in Terraform's state: import it, or delete it there", "",
		},
		{
			[]string{"infisical", "401"},
			"Infisical refuses the credentials; an organisation in the EU needs INFISICAL_HOST=https://eu.infisical.com", "",
		},
		{
			[]string{"infisical", "unauthorized"},
			"Infisical refuses the credentials; an organisation in the EU needs INFISICAL_HOST=https://eu.infisical.com", "",
		},
		{
			[]string{"toomanyrequests"},
			"the registry hands out no more images for now: it limits anonymous pulls; wait, or give a pull secret", "",
		},
		{
			[]string{"the server has asked for the client to provide credentials"},
			"the cluster refuses the kubeconfig: it was raised anew since, or its certificates have expired", "kubectl version",
		},
		{[]string{"no such host"}, "a name cannot be resolved from here: DNS, or a misspelt host", ""},
		{[]string{"no space left on device"}, "a disk is full: Terraform's, here, or the one that is written to", ""},
		{
			[]string{"x509", "certificate has expired"},
			"a certificate has expired, or a clock is wrong", "",
		},
		{
			[]string{"x509", "unknown authority"},
			"a server shows a certificate of an authority that is not trusted here: another server answers, or its CA has to be given", "",
		},
	}
}

// stepCause finds an error's words on the list.
func stepCause(words string) (cause, look string) {
	kind := terraform.FailureOf(words)
	words = strings.ToLower(words)
next:
	for _, known := range failureList() {
		for _, sign := range known.signs {
			if !strings.Contains(words, sign) {
				continue next
			}
		}
		return known.cause, known.look
	}
	return passingCauses()[kind], ""
}

// passingCauses explain what did not pass, though it was tried again.
func passingCauses() map[terraform.Failure]string {
	return map[terraform.Failure]string{
		terraform.Locked:     "Proxmox is still busy with another task of this VM or its storage; the same command goes on when that has ended",
		terraform.Throttled:  "the service limits how often it may be asked; the same command goes on when that has passed",
		terraform.Overloaded: "the service is down or overloaded, or what stands before it does not reach it; the same command goes on when it answers",
	}
}

// ran says which step of Terraform's did not succeed.
func stepReport(stage string, step *run.StepError) event.Diagnosis {
	return event.Diagnosis{
		Waited: fmt.Sprintf("Terraform, to %s stage %s", step.Step, stage),
		Seen:   strings.Join(strings.Fields(step.Err.Error()), " "), Since: time.Now(),
	}
}

// stepInquiry looks for what made Terraform fail: in its own words first, then,
// if the cluster can be reached, in the stage's gates and in what is wrong in the
// cluster as a whole. These two are only told as the cause if Terraform has
// waited in vain: after another failure they are closed and wrong because of it.
func inspectStep(r *run.Run, s Subject, step *run.StepError) func(context.Context) gate.Diagnosis {
	return func(ctx context.Context) gate.Diagnosis {
		words := step.Err.Error()
		cause, look := stepCause(words)
		d := gate.Diagnosis{Cause: cause, Look: look, Files: map[string][]byte{}}
		target := r.Outputs.Target()
		if len(target.Kubeconfig) == 0 {
			target.Kubeconfig, _ = os.ReadFile(r.Cluster.Dir.Kubeconfig()) //nolint:errcheck // no cluster yet, or none any more
		}
		if len(target.Kubeconfig) == 0 {
			return d
		}
		inquiries := append(inspectClosedGates(r, s), func(ctx context.Context) gate.Diagnosis {
			found := kube.Survey(ctx, target)
			if s.Layer == cluster.PlatformLayer || s.Layer == cluster.SecretsLayer {
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
			if d.Cause == "" && timedOut(words) {
				d.Cause, d.Look, d.Release = one.Cause, one.Look, one.Release
			}
		}
		return d
	}
}

// closedInquiries are the stage's gates, each of which looks round if it is closed.
func inspectClosedGates(r *run.Run, s Subject) []func(context.Context) gate.Diagnosis {
	var all []func(context.Context) gate.Diagnosis
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

// inVain reports whether Terraform gave up waiting, rather than being refused.
func timedOut(words string) bool {
	words = strings.ToLower(words)
	for _, sign := range []string{"deadline exceeded", "timed out", "timeout", "would exceed context deadline", "not ready", "did not finish"} {
		if strings.Contains(words, sign) {
			return true
		}
	}
	return false
}
