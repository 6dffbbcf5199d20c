package gates

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// workload checks with kstatus, and closes where kstatus accepts too little. It rejects a DaemonSet without
// a node, a running Job, a StatefulSet with manual updates, and any object that its controller has not seen.
func workload() definition {
	return definition{gate.Type{
		Name:    "workload",
		Summary: "a Deployment, DaemonSet or StatefulSet is rolled out, or a Job is complete",
		Attributes: map[string]gate.Attribute{
			"kind": {Type: cty.String, Required: true, Valid: validWorkload,
				Help: "Deployment, DaemonSet, StatefulSet or Job"},
			"namespace": {Type: cty.String, Required: true, Valid: validName,
				Help: "the workload's namespace"},
			"name": {Type: cty.String, Required: true, Valid: validName, Help: "the workload's name"},
			"desired": {Type: cty.Number, Valid: gate.ValidCount,
				Help: "how many pods it has to request at least; default 1"},
		},
		Check: func(v gate.Values) error {
			if v.Has("desired") && v.String("kind") == "Job" {
				return errors.New("desired: a Job is complete or it is not")
			}
			return nil
		},
	}, func(v gate.Values) (Checker, error) {
		kind := v.String("kind")
		if err := validWorkload(cty.StringVal(kind)); err != nil {
			return nil, fmt.Errorf("kind: %w", err)
		}
		return rollout{kind, WorkloadSelection(kind, v.String("namespace"), v.String("name")),
			int64(max(v.Int("desired"), 1))}, nil
	}}
}

// WorkloadSelection selects a workload by its kind and name.
func WorkloadSelection(kind, namespace, name string) client.Selection {
	return client.Selection{Resource: workloads[kind], Namespace: namespace, Name: name}
}

var workloads = map[string]schema.GroupVersionResource{
	"Deployment":  {Group: "apps", Version: "v1", Resource: "deployments"},
	"DaemonSet":   {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"StatefulSet": {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"Job":         {Group: "batch", Version: "v1", Resource: "jobs"},
}

func validWorkload(x cty.Value) error {
	if _, ok := workloads[x.AsString()]; !ok {
		return fmt.Errorf("%q is not one of Deployment, DaemonSet, StatefulSet and Job", x.AsString())
	}
	return nil
}

// rollout is a workload gate's arguments.
type rollout struct {
	kind    string
	object  client.Selection
	desired int64
}

func (r rollout) Selections(context.Context, *client.API) ([]client.Selection, error) {
	return []client.Selection{r.object}, nil
}

func (r rollout) Check(ctx context.Context, a *client.API) error {
	object, err := a.Get(ctx, r.object, r.kind)
	if err != nil {
		return err
	}
	what, kind := client.Title(object), object.GetKind()
	if _, seen := client.Observed(object); !seen && kind != "Job" {
		return fmt.Errorf("%s: its controller has not seen it yet", what)
	}
	result, err := status.Compute(object)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	switch {
	case kind == "Job" && result.Status == status.FailedStatus:
		// The API promises that a failed Job stays failed.
		failed, _ := client.ConditionOf(object, "Failed")
		return gate.Permanent(fmt.Errorf("%s failed: %s", what, failed.Why()))
	case result.Status != status.CurrentStatus:
		return fmt.Errorf("%s: %s", what, phrase(result.Message))
	case kind == "Job":
		return checkJob(object)
	}
	requested := client.Number(object, 1, "spec", "replicas")
	if kind == "DaemonSet" {
		requested = client.Number(object, 0, "status", "desiredNumberScheduled")
	}
	if requested < r.desired {
		return fmt.Errorf("%s: %d of %d pods requested", what, requested, r.desired)
	}
	if ready := client.Number(object, 0, "status", "readyReplicas"); kind == "StatefulSet" &&
		ready < requested {
		return fmt.Errorf("%s: %d of %d ready", what, ready, requested)
	}
	return nil
}

func checkJob(job *client.Object) error {
	if complete, ok := client.ConditionOf(job, "Complete"); ok && complete.Status == "True" {
		return nil
	}
	count := func(field string) int64 { return client.Number(job, 0, "status", field) }
	return fmt.Errorf("%s: not complete: %d running, %d succeeded, %d failed",
		client.Title(job), count("active"), count("succeeded"), count("failed"))
}

// phrase turns kstatus' "Available: 0/1" into "0 of 1 available".
func phrase(message string) string {
	what, counts, ok := strings.Cut(message, ": ")
	have, want, counted := strings.Cut(counts, "/")
	if !ok || !counted {
		return client.Brief(message)
	}
	what = strings.ToLower(what)
	if what == "replicas" || what == "current" {
		what = "created"
	}
	return fmt.Sprintf("%s of %s %s", have, want, what)
}
