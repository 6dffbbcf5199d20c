package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

const (
	// requestedAt asks Flux' controllers to reconcile an object now.
	requestedAt = "reconcile.fluxcd.io/requestedAt"
	// again is the least time between two requests for one object.
	again = 30 * time.Second
)

// trigger makes a flux gate's TriggerReconcile. A Kustomization whose dependency or
// source was not ready retries only after a pause, and after a failure only after a
// longer one, which may be many minutes; on request, it retries at once.
func (f *Flux) trigger(c *client.Cluster) func(context.Context) (string, error) {
	return func(ctx context.Context) (did string, err error) {
		err = c.Check(func(ctx context.Context, a *client.API) (err error) {
			did, err = f.requestReconcile(ctx, a, time.Now())
			return err
		})(ctx)
		return did, err
	}
}

func (f *Flux) requestReconcile(ctx context.Context, a *client.API, now time.Time) (string, error) {
	objects, err := f.objects(ctx, a)
	if err != nil {
		return "", err
	}
	var (
		requested []string
		errs      []error
	)
	for _, o := range objects {
		if o.why == "" || o.source.why != "" || !isIdle(&o.object) || requestedLately(&o.object, now) {
			continue
		}
		ready, err := dependenciesReady(ctx, a, o, objects)
		if err == nil && ready {
			err = annotate(ctx, a, &o.object, now)
			if err == nil {
				requested = append(requested, client.Title(&o.object))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", client.Title(&o.object), err))
		}
	}
	if len(requested) == 0 {
		return "", errors.Join(errs...)
	}
	return "requested a reconcile of objects that are not ready although their dependencies are: " +
		strings.Join(requested, ", "), errors.Join(errs...)
}

// isIdle reports whether a controller has seen an object and left it: it neither
// works on it, nor is suspended, nor has given up until the object changes.
func isIdle(object *unstructured.Unstructured) bool {
	ready, found := client.ConditionOf(object, "Ready")
	stalled, _ := client.ConditionOf(object, "Stalled")
	return found && ready.Status != "Unknown" && stalled.Status != "True" &&
		!client.True(object, "spec", "suspend") && object.GetDeletionTimestamp() == nil
}

// requestedLately reads the requests of any castle or person, so that two gates do
// not request twice.
func requestedLately(object *unstructured.Unstructured, now time.Time) bool {
	last, err := time.Parse(time.RFC3339Nano, object.GetAnnotations()[requestedAt])
	return err == nil && now.Sub(last).Abs() < again
}

// dependenciesReady reports whether everything that an object depends on has
// converged. That may be outside of the gate's own objects.
func dependenciesReady(ctx context.Context, a *client.API, o fluxObject, known []fluxObject) (bool, error) {
	needs, err := Dependencies(&o.object)
	if err != nil {
		return false, err
	}
	for _, need := range needs {
		if ready, err := dependencyReady(ctx, a, need, known); err != nil || !ready {
			return false, err
		}
	}
	return true, nil
}

func dependencyReady(ctx context.Context, a *client.API, ref Reference, known []fluxObject) (bool, error) {
	settled := func(o fluxObject) bool { return cmp.Or(o.why, o.source.why) == "" }
	for _, o := range known {
		if ref == ReferenceTo(&o.object) {
			return settled(o), nil
		}
	}
	object, err := getFlux(ctx, a, groupOf(ref.Kind), ref)
	if gate.KindOf(err) == gate.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	o, err := sources{a, map[Reference]source{}}.object(ctx, *object)
	return settled(o) && err == nil, err
}

func groupOf(kind string) string {
	if kind == "HelmRelease" {
		return helmGroup
	}
	return kustomizeGroup
}

func annotate(ctx context.Context, a *client.API, object *unstructured.Unstructured, now time.Time) error {
	r, err := a.ResolveIn(ctx, groupOf(object.GetKind()), object.GetKind())
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, requestedAt,
		now.UTC().Format(time.RFC3339Nano))
	_, err = a.Dynamic.Resource(r.GroupVersionResource).Namespace(object.GetNamespace()).
		Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "castle"})
	return err
}
