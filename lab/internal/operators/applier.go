package operators

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
)

// applier writes and reads objects of whatever kind, as Flux's controllers do.
type applier struct {
	untyped dynamic.Interface
	mapper  interface {
		meta.RESTMapper
		Reset()
	}
}

func newApplier(untyped dynamic.Interface, d discovery.DiscoveryInterface) *applier {
	return &applier{untyped: untyped,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}
}

// at finds where an object belongs. A kind that came a moment ago is known, too.
func (a *applier) at(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
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

// apply makes an object what it is to be, by server-side apply.
func (a *applier) apply(ctx context.Context, o *unstructured.Unstructured, manager string) error {
	api, err := a.at(o.GroupVersionKind(), o.GetNamespace())
	if err == nil {
		_, err = api.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: true})
	}
	if err != nil {
		return fmt.Errorf("%s dry-run failed: %w", titled(o), err)
	}
	return nil
}

// unhealthy is the first object that is not what it is to be yet; empty if all are.
func (a *applier) unhealthy(ctx context.Context, objects []*unstructured.Unstructured) (string, error) {
	for _, o := range objects {
		api, err := a.at(o.GroupVersionKind(), o.GetNamespace())
		if err != nil {
			return "", err
		}
		now, err := api.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return titled(o) + " status: 'NotFound'", nil
		}
		if err != nil {
			return "", err
		}
		is, err := status.Compute(now)
		if err != nil {
			return "", err
		}
		if is.Status != status.CurrentStatus {
			return titled(o) + " status: '" + is.Status.String() + "'", nil
		}
	}
	return "", nil
}

// remove deletes objects that are no longer wanted, the last first. What is not there is gone.
func (a *applier) remove(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range slices.Backward(objects) {
		api, err := a.at(o.GroupVersionKind(), o.GetNamespace())
		if meta.IsNoMatchError(err) {
			continue // its kind went before
		}
		if err != nil {
			return err
		}
		background := metav1.DeletePropagationBackground
		if err := unless(api.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}),
			apierrors.IsNotFound); err != nil {
			return fmt.Errorf("%s: %w", titled(o), err)
		}
	}
	return nil
}

// titled names an object as Flux does: Namespace/traefik, HelmRelease/traefik/traefik.
func titled(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + "/" + o.GetName()
	}
	return o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
}

// entry is how an inventory notes an object, and noted reads it.
func entry(o *unstructured.Unstructured) map[string]any {
	kind := o.GroupVersionKind()
	return map[string]any{"id": strings.Join([]string{o.GetNamespace(), o.GetName(), kind.Group, kind.Kind},
		"_"), "v": kind.Version}
}

func noted(entry map[string]any) *unstructured.Unstructured {
	part := strings.Split(text(entry, "id"), "_")
	if len(part) != 4 {
		return nil
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: part[2], Version: text(entry, "v"), Kind: part[3]})
	o.SetNamespace(part[0])
	o.SetName(strings.ReplaceAll(part[1], "__", ":")) // of RBAC
	return o
}

// finalizer keeps an object of Flux's until what it brought is gone.
const finalizer = "finalizers.fluxcd.io"

// hold puts Flux's finalizer on an object, and let takes it off.
func (w *world) hold(ctx context.Context, in schema.GroupVersionResource,
	o *unstructured.Unstructured) error {
	if slices.Contains(o.GetFinalizers(), finalizer) {
		return nil
	}
	return w.finalizers(ctx, in, o, append(o.GetFinalizers(), finalizer))
}

func (w *world) let(ctx context.Context, in schema.GroupVersionResource, o *unstructured.Unstructured) error {
	return w.finalizers(ctx, in, o, slices.DeleteFunc(o.GetFinalizers(), func(f string) bool {
		return f == finalizer
	}))
}

func (w *world) finalizers(ctx context.Context, in schema.GroupVersionResource, o *unstructured.Unstructured,
	to []string) error {
	changed := o.DeepCopy()
	changed.SetFinalizers(to)
	_, err := w.untyped.Resource(in).Namespace(o.GetNamespace()).Update(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the next look sees it as it is then
	}
	return err
}
