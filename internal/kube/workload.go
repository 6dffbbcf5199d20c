package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/zclconf/go-cty/cty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// workload judges with kstatus, and closes where kstatus takes too little for
// success: a DaemonSet that is meant for no node, a Job that only runs, a
// StatefulSet that is updated by hand, and whatever its controller has not seen.
func workload() gate.Type {
	return gate.Type{
		Name:       "workload",
		Summary:    "a Deployment, DaemonSet or StatefulSet is rolled out, or a Job is complete",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"kind":      {Type: cty.String, Required: true, Valid: validWorkload, Help: "Deployment, DaemonSet, StatefulSet or Job"},
			"namespace": {Type: cty.String, Required: true, Valid: validName, Help: "the workload's namespace"},
			"name":      {Type: cty.String, Required: true, Valid: validName, Help: "the workload's name"},
			"desired":   {Type: cty.Number, Valid: gate.ValidCount, Help: "how many pods it has to ask for at least; default 1"},
		},
		Check: func(v gate.Values) error {
			if v.Has("desired") && v.String("kind") == "Job" {
				return errors.New("desired: a Job is complete or it is not")
			}
			return nil
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			in, ok := workloadResource(v.String("kind"))
			if !ok {
				return gate.Gate{}, fmt.Errorf("kind: %w", validWorkload(cty.StringVal(v.String("kind"))))
			}
			c, what := newCluster(target, ""), selection{in: in, namespace: v.String("namespace"), name: v.String("name")}
			kind, desired := v.String("kind"), max(v.Int("desired"), 1)
			return gate.Gate{
				Name: name,
				Check: c.ask(func(ctx context.Context, a *api) error {
					object, err := a.get(ctx, what.in, what.namespace, what.name)
					if apierrors.IsNotFound(err) {
						return fmt.Errorf("%s does not exist yet", titled(kind, what.namespace, what.name))
					}
					if err != nil {
						return err
					}
					return judgeWorkload(object, int64(desired))
				}),
				Changed: c.changes(always(what)),
			}, nil
		},
	}
}

func workloadResource(kind string) (schema.GroupVersionResource, bool) {
	switch kind {
	case "Deployment", "DaemonSet", "StatefulSet":
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: strings.ToLower(kind) + "s"}, true
	case "Job":
		return schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, true
	}
	return schema.GroupVersionResource{}, false
}

func validWorkload(x cty.Value) error {
	if _, ok := workloadResource(x.AsString()); !ok {
		return fmt.Errorf("%q is none of Deployment, DaemonSet, StatefulSet and Job", x.AsString())
	}
	return nil
}

func judgeWorkload(object *unstructured.Unstructured, desired int64) error {
	what, kind := title(object), object.GetKind()
	if _, seen := observed(object); !seen && kind != "Job" {
		return fmt.Errorf("%s: its controller has not seen it yet", what)
	}
	result, err := status.Compute(object)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	switch {
	case kind == "Job" && result.Status == status.FailedStatus:
		// The API promises that a failed Job stays failed.
		failed, _ := stateOf(object, "Failed")
		return gate.Permanent(fmt.Errorf("%s failed: %s", what, failed.why()))
	case result.Status != status.CurrentStatus:
		return fmt.Errorf("%s: %s", what, phrase(result.Message))
	case kind == "Job":
		return judgeJob(object)
	}
	asked := number(object, 1, "spec", "replicas")
	if kind == "DaemonSet" {
		asked = number(object, 0, "status", "desiredNumberScheduled")
	}
	if asked < desired {
		return fmt.Errorf("%s: %d of %d pods asked for", what, asked, desired)
	}
	if ready := number(object, 0, "status", "readyReplicas"); kind == "StatefulSet" && ready < asked {
		return fmt.Errorf("%s: %d of %d ready", what, ready, asked)
	}
	return nil
}

func judgeJob(job *unstructured.Unstructured) error {
	if complete, ok := stateOf(job, "Complete"); ok && complete.Status == "True" {
		return nil
	}
	return fmt.Errorf("%s: not complete: %d running, %d succeeded, %d failed", title(job),
		number(job, 0, "status", "active"), number(job, 0, "status", "succeeded"), number(job, 0, "status", "failed"))
}

// phrase turns kstatus' "Available: 0/1" into "0 of 1 available".
func phrase(message string) string {
	what, counts, ok := strings.Cut(message, ": ")
	have, want, counted := strings.Cut(counts, "/")
	if !ok || !counted {
		return brief(message)
	}
	what = strings.ToLower(what)
	if what == "replicas" || what == "current" {
		what = "created"
	}
	return fmt.Sprintf("%s of %s %s", have, want, what)
}
