package flux

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// ownerLabel and ownerNamespaceLabel are Flux' labels on the objects that a Kustomization applies.
const (
	ownerLabel          = "kustomize.toolkit.fluxcd.io/name"
	ownerNamespaceLabel = "kustomize.toolkit.fluxcd.io/namespace"
)

// child is a Kustomization in the lab's generated repository.
type child struct{ name, after string }

// children is the usual shape of such a repository: operators, then what
// configures them, then what runs on them.
func children() []child {
	return []child{{"infrastructure-operators", ""}, {"infrastructure-configs", "infrastructure-operators"},
		{"apps", "infrastructure-configs"}}
}

// bring applies the objects of a Kustomization and returns the reason why it is not ready.
func (f *flux) bring(ctx context.Context, k *unstructured.Unstructured,
	revision, folder string) ([]*unstructured.Unstructured, *obstacle, error) {
	if f.fleet == nil {
		return nil, nil, f.pretend(ctx, k)
	}
	return f.fleet.bring(ctx, k, revision, folder)
}

// pretend creates the objects in the root Kustomization's folder. Other Kustomizations are empty.
func (f *flux) pretend(ctx context.Context, k *unstructured.Unstructured) error {
	if k.GetName() != cluster.Text(k.Object, "spec", "sourceRef", "name") || k.GetLabels()[ownerLabel] != "" {
		return nil
	}
	api := f.w.Untyped.Resource(kustomizations()).Namespace(k.GetNamespace())
	there, err := f.w.List(ctx, kustomizations(), k.GetNamespace())
	if err != nil {
		return err
	}
	for _, c := range children() {
		if slices.ContainsFunc(there, func(o unstructured.Unstructured) bool {
			return o.GetName() == c.name
		}) {
			continue
		}
		spec := map[string]any{
			"interval": "15m", "retryInterval": "1m", "prune": true, "wait": true, "path": "./" + c.name,
			"sourceRef": map[string]any{"kind": cluster.Text(k.Object, "spec", "sourceRef", "kind"),
				"name": cluster.Text(k.Object, "spec", "sourceRef", "name")},
			"postBuild": map[string]any{"substituteFrom": []any{
				map[string]any{"kind": "ConfigMap", "name": "cluster-vars", "optional": false},
			}},
		}
		if c.after != "" {
			spec["dependsOn"] = []any{map[string]any{"name": c.after}}
		}
		_, err := api.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
			"metadata": map[string]any{"name": c.name, "namespace": k.GetNamespace(),
				"labels": map[string]any{ownerLabel: k.GetName()}},
			"spec": spec,
		}}, metav1.CreateOptions{})
		if err := cluster.Unless(err, apierrors.IsAlreadyExists); err != nil {
			return err
		}
	}
	return nil
}

// prune deletes the objects of a deleted Kustomization.
func (f *flux) prune(ctx context.Context) error {
	if f.fleet != nil {
		return nil // each is held until what it brought is gone
	}
	all, err := f.w.List(ctx, kustomizations(), "")
	there := map[string]bool{}
	for _, k := range all {
		there[k.GetNamespace()+"/"+k.GetName()] = k.GetDeletionTimestamp() == nil
	}
	errs := []error{err}
	for _, k := range all {
		if owner := k.GetLabels()[ownerLabel]; owner != "" && !there[k.GetNamespace()+"/"+owner] {
			err := f.w.Untyped.Resource(kustomizations()).Namespace(k.GetNamespace()).Delete(ctx, k.GetName(),
				metav1.DeleteOptions{})
			errs = append(errs, cluster.Unless(err, apierrors.IsNotFound))
		}
	}
	return errors.Join(errs...)
}
