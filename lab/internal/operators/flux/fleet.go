package flux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gitops"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// Fleet applies the path of each Kustomization from the folder that its source has fetched, as Flux does. It
// applies a revision again only after a change or a reconcile request.
type Fleet struct {
	w     *cluster.View
	a     *Applier
	age   string // the identity that stands in for the user's
	built map[string][]gitops.Object
	held  map[string][]*unstructured.Unstructured // what was applied, by step
}

// NewFleet returns an empty fleet. The identity of age opens what SOPS has encrypted.
func NewFleet(w *cluster.View, a *Applier, identity string) *Fleet {
	return &Fleet{w: w, a: a, age: identity, built: map[string][]gitops.Object{},
		held: map[string][]*unstructured.Unstructured{}}
}

// ownerLabel and ownerNamespaceLabel are Flux' labels on the objects that a Kustomization applies.
const (
	ownerLabel          = "kustomize.toolkit.fluxcd.io/name"
	ownerNamespaceLabel = "kustomize.toolkit.fluxcd.io/namespace"
)

// manager is the field manager in an object's managedFields.
const manager = "kustomize-controller"

// bring applies the objects of a Kustomization. It returns the applied objects and the reason why
// the Kustomization is not ready.
func (t *Fleet) bring(ctx context.Context, k *unstructured.Unstructured,
	revision, folder string) ([]*unstructured.Unstructured, *obstacle, error) {
	if err := hold(ctx, t.w, kustomizations(), k); err != nil {
		return nil, nil, err
	}
	parsed, err := gitops.Parse(k)
	if err != nil {
		return nil, &obstacle{reason: "BuildFailed", message: err.Error()}, nil
	}
	if _, err := os.Stat(filepath.Join(folder, parsed.Path)); err != nil {
		return nil, &obstacle{reason: "ArtifactFailed",
			message: "kustomization path not found: " + err.Error()}, nil
	}
	step := fmt.Sprintf("%s %d %s %s", k.GetUID(), k.GetGeneration(), revision, k.GetAnnotations()[requested])
	objects, done := t.held[step]
	if !done {
		if objects, err = t.build(ctx, parsed, folder, step); err != nil {
			return nil, &obstacle{reason: "BuildFailed", message: err.Error()}, nil
		}
		if err := t.apply(ctx, k, objects); err != nil {
			return nil, &obstacle{reason: "ReconciliationFailed", message: err.Error()}, nil
		}
		if err := t.prune(ctx, k, objects); err != nil {
			return nil, &obstacle{reason: "PruneFailed", message: err.Error()}, nil
		}
		t.held[step] = objects
	}
	if !parsed.Waits() {
		return objects, nil, nil
	}
	checked := objects
	if !parsed.Wait {
		checked = checks(k)
	}
	waits, err := t.a.unhealthy(ctx, checked)
	if err != nil || waits == "" {
		return objects, nil, err
	}
	limit := duration(k, 5*time.Minute, "spec", "timeout")
	if t.w.Passed("health "+step, limit) {
		return objects,
			&obstacle{reason: "HealthCheckFailed",
				message: fmt.Sprintf("health check failed after %s: timeout waiting for: [%s]", limit,
					waits)}, nil
	}
	return objects,
		&obstacle{reason: "Progressing",
			message: fmt.Sprintf("Running health checks for revision %s with a timeout of %s", revision,
				limit)}, nil
}

// checks are the objects of a Kustomization's healthChecks.
func checks(k *unstructured.Unstructured) (all []*unstructured.Unstructured) {
	//nolint:errcheck // the API server has validated it
	listed, _, _ := unstructured.NestedSlice(k.Object, "spec", "healthChecks")
	for _, one := range listed {
		check, _ := one.(map[string]any)
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(cluster.Text(check, "apiVersion"))
		o.SetKind(cluster.Text(check, "kind"))
		o.SetName(cluster.Text(check, "name"))
		o.SetNamespace(cluster.Text(check, "namespace"))
		all = append(all, o)
	}
	return all
}

// build makes the objects, with their variables replaced.
func (t *Fleet) build(ctx context.Context, k *gitops.Kustomization,
	folder, step string) ([]*unstructured.Unstructured, error) {
	var keys decryption
	if k.Keys != "" {
		data, there, err := t.w.Offered(ctx, "Secret", k.Key.Namespace, k.Keys)
		if err != nil || !there {
			return nil, cmp.Or(err, fmt.Errorf("secrets %q not found", k.Keys))
		}
		if keys, err = t.importKeys(k, data); err != nil {
			return nil, err
		}
	}
	built, done := t.built[step]
	if !done {
		var err error
		if built, err = gitops.Build(folder, k); err != nil {
			return nil, err
		}
		t.built[step] = built
	}
	var failed error
	built, err := k.Substitute(built, func(kind, namespace, name string) (map[string]string, bool) {
		values, there, err := t.w.Offered(ctx, kind, namespace, name)
		failed = errors.Join(failed, err)
		return values, there
	}, false)
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, o := range built {
		object := o.DeepCopy()
		if err := keys.decrypt(k, object); err != nil {
			return nil, err
		}
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[ownerLabel], labels[ownerNamespaceLabel] = k.Key.Name, k.Key.Namespace
		object.SetLabels(labels)
		objects = append(objects, object)
	}
	return objects, nil
}

// apply writes namespaces and definitions before what needs them, as Flux does, and
// stops at the first object that is refused.
func (t *Fleet) apply(ctx context.Context, k *unstructured.Unstructured,
	objects []*unstructured.Unstructured) error {
	for _, first := range []bool{true, false} {
		for _, o := range objects {
			if slices.Contains([]string{"Namespace", "CustomResourceDefinition", "ClusterRole"},
				o.GetKind()) != first || isSame(o, k) {
				continue
			}
			if err := t.a.apply(ctx, o, manager); err != nil {
				return err
			}
		}
	}
	return nil
}

// isSame reports whether a repository contains its own root, as Flux's bootstrap leaves it. castle
// creates the root, so the applier does not change it.
func isSame(o, k *unstructured.Unstructured) bool {
	return gitops.IsKustomization(o) && o.GetName() == k.GetName() && o.GetNamespace() == k.GetNamespace()
}

// prune deletes the objects that the Kustomization applied before and no longer contains.
func (t *Fleet) prune(ctx context.Context, k *unstructured.Unstructured,
	objects []*unstructured.Unstructured) error {
	//nolint:errcheck // the API server has validated it
	if prune, _, _ := unstructured.NestedBool(k.Object, "spec", "prune"); !prune {
		return nil
	}
	gone := slices.DeleteFunc(inventory(k), func(old *unstructured.Unstructured) bool {
		return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
			return cluster.Text(entry(o), "id") == cluster.Text(entry(old), "id")
		})
	})
	return t.a.remove(ctx, gone)
}

// inventory returns the objects that a Kustomization has applied.
func inventory(k *unstructured.Unstructured) []*unstructured.Unstructured {
	//nolint:errcheck // written here
	entries, _, _ := unstructured.NestedSlice(k.Object, "status", "inventory", "entries")
	var all []*unstructured.Unstructured
	for _, e := range entries {
		if one, ok := e.(map[string]any); ok {
			if o := noted(one); o != nil {
				all = append(all, o)
			}
		}
	}
	return all
}

// finish removes the finalizer of a deleted Kustomization once the objects that it applied are
// deleted.
func (t *Fleet) finish(ctx context.Context, k *unstructured.Unstructured) error {
	if !slices.Contains(k.GetFinalizers(), finalizer) {
		return nil
	}
	if err := t.prune(ctx, k, nil); err != nil {
		return err
	}
	return let(ctx, t.w, kustomizations(), k)
}

// duration reads a duration of an object's.
func duration(o *unstructured.Unstructured, otherwise time.Duration, path ...string) time.Duration {
	if d, err := time.ParseDuration(cluster.Text(o.Object, path...)); err == nil && d > 0 {
		return d
	}
	return otherwise
}

// listed writes an inventory.
func listed(objects []*unstructured.Unstructured) map[string]any {
	entries := []any{}
	for _, o := range objects {
		entries = append(entries, entry(o))
	}
	slices.SortFunc(entries, func(a, b any) int {
		return strings.Compare(cluster.Text(a.(map[string]any), "id"), cluster.Text(b.(map[string]any), "id"))
	})
	return map[string]any{"entries": entries}
}
