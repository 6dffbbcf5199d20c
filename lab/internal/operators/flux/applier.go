package flux

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// Applier writes and reads objects of whatever kind, as Flux's controllers do.
type Applier struct {
	untyped dynamic.Interface
	mapper  interface {
		meta.RESTMapper
		Reset()
	}
}

// NewApplier returns an applier for the kinds that the API serves.
func NewApplier(untyped dynamic.Interface, d discovery.DiscoveryInterface) *Applier {
	return &Applier{untyped: untyped,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}
}

// at finds where an object belongs. A kind that came a moment ago is known, too.
func (a *Applier) at(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	m, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		a.mapper.Reset()
		m, err = a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return a.untyped.Resource(m.Resource), nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return a.untyped.Resource(m.Resource).Namespace(namespace), nil
}

// apply brings an object to its desired state by server-side apply.
func (a *Applier) apply(ctx context.Context, o *unstructured.Unstructured, manager string) error {
	api, err := a.at(o.GroupVersionKind(), o.GetNamespace())
	if err == nil {
		_, err = api.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: true})
	}
	if err != nil {
		return fmt.Errorf("%s dry-run failed: %w", cluster.Titled(o), err)
	}
	return nil
}

// unhealthy returns the first object that is not ready, or "" if all objects are.
func (a *Applier) unhealthy(ctx context.Context, objects []*unstructured.Unstructured) (string, error) {
	for _, o := range objects {
		api, err := a.at(o.GroupVersionKind(), o.GetNamespace())
		if err != nil {
			return "", err
		}
		now, err := api.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return cluster.Titled(o) + " status: 'NotFound'", nil
		}
		if err != nil {
			return "", err
		}
		is, err := status.Compute(now)
		if err != nil {
			return "", err
		}
		if is.Status != status.CurrentStatus {
			return cluster.Titled(o) + " status: '" + is.Status.String() + "'", nil
		}
	}
	return "", nil
}

// remove deletes outdated objects in reverse order. It ignores objects that are not found.
func (a *Applier) remove(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range slices.Backward(objects) {
		api, err := a.at(o.GroupVersionKind(), o.GetNamespace())
		if meta.IsNoMatchError(err) {
			continue // its kind went before
		}
		if err != nil {
			return err
		}
		background := metav1.DeletePropagationBackground
		if err := cluster.Unless(api.Delete(ctx, o.GetName(),
			metav1.DeleteOptions{PropagationPolicy: &background}),
			apierrors.IsNotFound); err != nil {
			return fmt.Errorf("%s: %w", cluster.Titled(o), err)
		}
	}
	return nil
}

// entry encodes an object for an inventory, and noted decodes it.
func entry(o *unstructured.Unstructured) map[string]any {
	kind := o.GroupVersionKind()
	return map[string]any{"id": strings.Join([]string{o.GetNamespace(), o.GetName(), kind.Group, kind.Kind},
		"_"), "v": kind.Version}
}

func noted(entry map[string]any) *unstructured.Unstructured {
	part := strings.Split(cluster.Text(entry, "id"), "_")
	if len(part) != 4 {
		return nil
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: part[2], Version: cluster.Text(entry, "v"),
		Kind: part[3]})
	o.SetNamespace(part[0])
	o.SetName(strings.ReplaceAll(part[1], "__", ":")) // of RBAC
	return o
}

// finalizer keeps a Flux object until the objects that it applied are deleted.
const finalizer = "finalizers.fluxcd.io"

// hold puts Flux's finalizer on an object, and let takes it off.
func hold(ctx context.Context, w *cluster.View, in schema.GroupVersionResource,
	o *unstructured.Unstructured) error {
	if slices.Contains(o.GetFinalizers(), finalizer) {
		return nil
	}
	return finalizers(ctx, w, in, o, append(o.GetFinalizers(), finalizer))
}

func let(ctx context.Context, w *cluster.View, in schema.GroupVersionResource,
	o *unstructured.Unstructured) error {
	return finalizers(ctx, w, in, o, slices.DeleteFunc(o.GetFinalizers(), func(f string) bool {
		return f == finalizer
	}))
}

func finalizers(ctx context.Context, w *cluster.View, in schema.GroupVersionResource,
	o *unstructured.Unstructured,
	to []string) error {
	changed := o.DeepCopy()
	changed.SetFinalizers(to)
	_, err := w.Untyped.Resource(in).Namespace(o.GetNamespace()).Update(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the next look sees it as it is then
	}
	return err
}
