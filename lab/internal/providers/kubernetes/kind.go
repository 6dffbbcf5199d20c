package kubernetes

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// api is the interface of client-go for one kind, in one namespace or in the cluster.
type api[T any] interface {
	Create(context.Context, *T, metav1.CreateOptions) (*T, error)
	Get(context.Context, string, metav1.GetOptions) (*T, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// kind is one Kubernetes kind as a Terraform resource. Its functions hold the differences between
// kinds; all kinds share the calls.
type kind[T any] struct {
	provider *provider
	in       func(core corev1.CoreV1Interface, namespace string) api[T]
	// clusterWide kinds have an id without a namespace.
	clusterWide bool
	build       func(planned plugin.Values) *T
	values      func(have *T, state plugin.Values) plugin.Values
	// patch returns the changes of an update besides the metadata; may be nil.
	patch func(plugin.Change) map[string]any
	// failed is the start of the real provider's message for a failed update.
	failed string
}

// find returns the API and the name that belong to an id.
func (k kind[T]) find(id string) (api[T], string, error) {
	core, err := k.provider.connect()
	if err != nil {
		return nil, "", err
	}
	if k.clusterWide {
		return k.in(core, ""), id, nil
	}
	namespace, name, err := split(id)
	if err != nil {
		return nil, "", err
	}
	return k.in(core, namespace), name, nil
}

func (k kind[T]) create(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	core, err := k.provider.connect()
	if err != nil {
		return nil, err
	}
	made, err := k.in(core, objectMeta(c.Planned).Namespace).Create(ctx, k.build(c.Planned),
		metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return k.values(made, c.Planned), nil
}

func (k kind[T]) read(ctx context.Context, state plugin.Values) (plugin.Values, error) {
	api, name, err := k.find(state.String("id"))
	if err != nil {
		return nil, err
	}
	found, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return k.values(found, state), nil
}

func (k kind[T]) update(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	api, name, err := k.find(c.Prior.String("id"))
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	if k.patch != nil {
		body = k.patch(c)
	}
	body["metadata"] = metadataPatch(c)
	patch, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	changed, err := api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case err != nil && k.failed != "":
		return nil, &plugin.Problem{Summary: k.failed + ": " + err.Error()}
	case err != nil:
		return nil, err
	}
	return k.values(changed, c.Planned), nil
}

func (k kind[T]) delete(ctx context.Context, state plugin.Values) error {
	api, name, err := k.find(state.String("id"))
	if err != nil {
		return err
	}
	if err := api.Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
