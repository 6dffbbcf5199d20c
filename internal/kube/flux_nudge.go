package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// requestedAt asks Flux' controllers to reconcile an object now.
	requestedAt = "reconcile.fluxcd.io/requestedAt"
	// again is how long an object is left in peace after it was asked.
	again = 30 * time.Second
)

// nudge makes a flux gate's Nudge. A Kustomization that found a dependency or
// its source not ready looks again only after a pause, and after a failure only
// after a longer one, which may be many minutes; asked, it looks at once.
func (c *cluster) nudge(f *convergence) func(context.Context) (string, error) {
	return func(ctx context.Context) (did string, err error) {
		err = c.ask(func(ctx context.Context, a *api) (err error) {
			did, err = f.nudge(ctx, a, time.Now())
			return err
		})(ctx)
		return did, err
	}
}

func (f *convergence) nudge(ctx context.Context, a *api, now time.Time) (string, error) {
	subjects, err := f.look(ctx, a)
	if err != nil {
		return "", err
	}
	var (
		asked []string
		errs  []error
	)
	for _, s := range subjects {
		if s.why == "" || s.source.why != "" || !standsStill(&s.object) || askedLately(&s.object, now) {
			continue
		}
		free, err := a.dependenciesReady(ctx, s, subjects)
		if err == nil && free {
			err = a.request(ctx, &s.object, now)
			if err == nil {
				asked = append(asked, title(&s.object))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", title(&s.object), err))
		}
	}
	if len(asked) == 0 {
		return "", errors.Join(errs...)
	}
	return "asked to reconcile what is not ready although all that it needs is: " + strings.Join(asked, ", "), errors.Join(errs...)
}

// standsStill reports whether a controller has seen an object and left it: it
// neither works on it, nor was told to leave it, nor has given up until it is
// changed.
func standsStill(object *unstructured.Unstructured) bool {
	ready, judged := stateOf(object, "Ready")
	stalled, _ := stateOf(object, "Stalled")
	suspended, _, err := unstructured.NestedBool(object.Object, "spec", "suspend")
	return judged && ready.Status != "Unknown" && stalled.Status != "True" && err == nil && !suspended && object.GetDeletionTimestamp() == nil
}

// askedLately reads what any castle or person has asked for, so that two gates
// do not ask twice.
func askedLately(object *unstructured.Unstructured, now time.Time) bool {
	last, err := time.Parse(time.RFC3339Nano, object.GetAnnotations()[requestedAt])
	return err == nil && now.Sub(last).Abs() < again
}

// dependenciesReady reports whether everything that an object depends on has
// converged. That may lie outside of what the gate is asked about.
func (a *api) dependenciesReady(ctx context.Context, s subject, known []subject) (bool, error) {
	needs, _, err := unstructured.NestedSlice(s.object.Object, "spec", "dependsOn")
	if err != nil {
		return false, err
	}
	for _, need := range needs {
		fields, ok := need.(map[string]any)
		if !ok {
			return false, errors.New("its dependsOn is no list of references")
		}
		name, _ := fields["name"].(string)
		namespace, _ := fields["namespace"].(string)
		why, err := a.dependency(ctx, reference{s.object.GetKind(), cmp.Or(namespace, s.object.GetNamespace()), name}, known)
		if err != nil || why != "" {
			return false, err
		}
	}
	return true, nil
}

func (a *api) dependency(ctx context.Context, ref reference, known []subject) (why string, err error) {
	for _, s := range known {
		if ref == (reference{s.object.GetKind(), s.object.GetNamespace(), s.object.GetName()}) {
			return cmp.Or(s.why, s.source.why), nil
		}
	}
	r, err := a.resolveIn(ctx, groupOf(ref.kind), ref.kind)
	if err != nil {
		return "", err
	}
	object, err := a.get(ctx, r.GroupVersionResource, ref.namespace, ref.name)
	if apierrors.IsNotFound(err) {
		return "does not exist yet", nil
	}
	if err != nil {
		return "", err
	}
	s, err := sources{a: a, seen: map[reference]verdict{}}.subject(ctx, *object)
	return cmp.Or(s.why, s.source.why), err
}

func groupOf(kind string) string {
	if kind == "HelmRelease" {
		return helmGroup
	}
	return kustomizeGroup
}

func (a *api) request(ctx context.Context, object *unstructured.Unstructured, now time.Time) error {
	r, err := a.resolveIn(ctx, groupOf(object.GetKind()), object.GetKind())
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, requestedAt, now.UTC().Format(time.RFC3339Nano))
	_, err = a.dynamic.Resource(r.GroupVersionResource).Namespace(object.GetNamespace()).
		Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "castle"})
	return err
}
