// Package flux does in the lab what Flux's controllers do outside: the source-, the
// kustomize- and the helm-controller. Helm itself is real.
package flux

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// flux is the source-controller and the kustomize-controller. It fetches repositories and artifacts
// (source.go), and its Kustomizations apply what was fetched (fleet.go).
type flux struct {
	w       *cluster.View
	fleet   *Fleet
	frozen  *frozen // nil when nobody asked for it, or it is over
	dir     string  // of what is fetched
	sources map[types.UID]*source
}

// New returns the source- and the kustomize-controller. What they fetch is in dir.
func New(w *cluster.View, fleet *Fleet, dir string) *flux {
	f := &flux{w: w, fleet: fleet, dir: dir, sources: map[types.UID]*source{}}
	if w.Faults.Frozen {
		f.frozen = &frozen{}
	}
	return f
}

func (f *flux) Close() {}

func repositories() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1",
		Resource: "gitrepositories"}
}

func artifacts() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1",
		Resource: "ocirepositories"}
}

// sourcesOf is where the objects of a kind of source are.
func sourcesOf(kind string) schema.GroupVersionResource {
	if kind == "OCIRepository" {
		return artifacts()
	}
	return repositories()
}

func kustomizations() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1",
		Resource: "kustomizations"}
}

func (f *flux) Look(ctx context.Context) error {
	var errs []error
	source, err := f.w.Deployment(ctx, "source-controller")
	if err != nil {
		return err
	}
	if source != nil {
		errs = append(errs, f.each(ctx, repositories(), f.fetch), f.each(ctx, artifacts(), f.fetch))
	}
	kustomize, err := f.w.Deployment(ctx, "kustomize-controller")
	if err != nil {
		return err
	}
	if kustomize != nil {
		errs = append(errs, f.each(ctx, kustomizations(), f.apply))
	}
	return errors.Join(errs...)
}

func (f *flux) each(ctx context.Context, in schema.GroupVersionResource,
	do func(context.Context, *unstructured.Unstructured) error) error {
	all, err := f.w.List(ctx, in, "")
	errs := []error{err}
	for _, object := range all {
		if object.GetDeletionTimestamp() != nil {
			if in == kustomizations() {
				errs = append(errs, f.fleet.finish(ctx, &object))
			}
		} else {
			errs = append(errs, cluster.About(object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName(),
				do(ctx, &object)))
		}
	}
	return errors.Join(errs...)
}

// apply brings a Kustomization to its source's revision.
func (f *flux) apply(ctx context.Context, k *unstructured.Unstructured) error {
	//nolint:errcheck // the API server has validated it
	if suspended, _, _ := unstructured.NestedBool(k.Object, "spec", "suspend"); suspended {
		return nil
	}
	generation := k.GetGeneration()
	revision, folder, blocked := f.blocked(ctx, k)
	if blocked == nil {
		blocked = f.freeze(k)
	}
	step := fmt.Sprintf("apply %s %d %s", k.GetUID(), generation, revision)
	if blocked == nil && !f.w.Passed(step, 6*time.Second) {
		return f.w.SetStatus(ctx, kustomizations(), k, func(status map[string]any) {
			handled(status, k)
			status["lastAttemptedRevision"] = revision
			f.w.SetCondition(status, "Reconciling", "True", "Progressing", "Reconciliation in progress",
				generation)
			f.w.SetCondition(status, "Ready", "Unknown", "Progressing", "Reconciliation in progress",
				generation)
		})
	}
	var brought []*unstructured.Unstructured
	if blocked == nil {
		var err error
		if brought, blocked, err = f.fleet.bring(ctx, k, revision, folder); err != nil {
			return err
		}
	}
	return report(ctx, f.w, kustomizations(), k, func(status map[string]any) {
		handled(status, k)
		if brought != nil {
			status["inventory"] = listed(brought)
		}
		if blocked != nil && blocked.reason == "Progressing" {
			status["lastAttemptedRevision"] = revision
			f.w.SetCondition(status, "Reconciling", "True", blocked.reason, blocked.message, generation)
			f.w.SetCondition(status, "Ready", "Unknown", blocked.reason, blocked.message, generation)
			return
		}
		cluster.DropCondition(status, "Reconciling")
		if blocked != nil {
			f.w.SetCondition(status, "Ready", "False", blocked.reason, blocked.message, generation)
			return
		}
		status["lastAttemptedRevision"], status["lastAppliedRevision"], status["observedGeneration"] =
			revision, revision, generation
		f.w.SetCondition(status, "Ready", "True", "ReconciliationSucceeded", "Applied revision: "+revision,
			generation)
	})
}

// obstacle is why a Kustomization cannot be applied.
type obstacle struct{ reason, message string }

// blocked returns the revision that a Kustomization has to apply and the folder with it, or the obstacle that
// blocks it.
func (f *flux) blocked(ctx context.Context, k *unstructured.Unstructured) (revision, folder string,
	_ *obstacle) {
	at := func(field string) string { return cluster.Text(k.Object, "spec", "sourceRef", field) }
	namespace := at("namespace")
	if namespace == "" {
		namespace = k.GetNamespace()
	}
	source, err := f.w.Untyped.Resource(sourcesOf(at("kind"))).Namespace(namespace).Get(ctx, at("name"),
		metav1.GetOptions{})
	if err != nil {
		return "", "", &obstacle{"ArtifactFailed", err.Error()}
	}
	revision = cluster.Text(source.Object, "status", "artifact", "revision")
	if revision == "" {
		return "", "", &obstacle{"ArtifactFailed", "Source artifact not found, retrying in 30s"}
	}
	if fetched := f.sources[source.GetUID()]; fetched != nil {
		folder = fetched.folder
	}
	needs, _, err := unstructured.NestedSlice(k.Object, "spec", "dependsOn")
	if err != nil {
		return "", "", &obstacle{"DependencyNotReady", err.Error()}
	}
	for _, need := range needs {
		one, _ := need.(map[string]any)
		other, err := f.w.Untyped.Resource(kustomizations()).Namespace(k.GetNamespace()).Get(ctx,
			cluster.Text(one, "name"), metav1.GetOptions{})
		if err != nil {
			return "", "", &obstacle{"DependencyNotReady", "dependency '" + k.GetNamespace() + "/" +
				cluster.Text(one, "name") + "' not found: " + err.Error()}
		}
		if cluster.ConditionOf(other.Object, "Ready") != "True" ||
			cluster.Text(other.Object, "status", "lastAppliedRevision") != revision {
			return "", "", notReady(k.GetNamespace(), cluster.Text(one, "name"))
		}
	}
	if err := f.substitutes(ctx, k); err != nil {
		return "", "", &obstacle{"BuildFailed", err.Error()}
	}
	return revision, folder, nil
}

// substitutes wants every ConfigMap that variables come from, unless it is optional.
func (f *flux) substitutes(ctx context.Context, k *unstructured.Unstructured) error {
	sources, _, err := unstructured.NestedSlice(k.Object, "spec", "postBuild", "substituteFrom")
	if err != nil {
		return err
	}
	for _, source := range sources {
		one, _ := source.(map[string]any)
		if optional, _ := one["optional"].(bool); optional || cluster.Text(one, "kind") != "ConfigMap" {
			continue
		}
		_, err := f.w.Typed.CoreV1().ConfigMaps(k.GetNamespace()).Get(ctx, cluster.Text(one, "name"),
			metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("substitute from 'ConfigMap/%s' error: %w", cluster.Text(one, "name"), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
