package operators

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// fill puts a webhook's authority where the API server looks for it.
type fill func(ctx context.Context, namespace string, authority []byte) error

// each fills one place after the other.
func each(fills ...fill) fill {
	return func(ctx context.Context, namespace string, authority []byte) error {
		var errs []error
		for _, f := range fills {
			errs = append(errs, f(ctx, namespace, authority))
		}
		return errors.Join(errs...)
	}
}

// unlessFault fills nothing in while a fault holds.
func unlessFault(f *cluster.Fault, then fill) fill {
	return func(ctx context.Context, namespace string, authority []byte) error {
		if f.Holds() {
			return nil
		}
		return then(ctx, namespace, authority)
	}
}

// validating returns a fill that puts the authority into every entry of
// validating webhook configurations that a chart has made.
func validating(w *cluster.View, names ...string) fill {
	return func(ctx context.Context, _ string, authority []byte) error {
		configurations := w.Typed.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		for _, name := range names {
			c, err := configurations.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			changed := false
			for i := range c.Webhooks {
				if client := &c.Webhooks[i].ClientConfig; !bytes.Equal(client.CABundle, authority) {
					client.CABundle, changed = authority, true
				}
			}
			if !changed {
				continue
			}
			if _, err := configurations.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
}

// converting returns a fill that puts the authority into the conversion webhook
// of a CustomResourceDefinition that a chart has made.
func converting(w *cluster.View, name string) fill {
	return func(ctx context.Context, _ string, authority []byte) error {
		definitions := w.Untyped.Resource(definitions())
		d, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		bundle := base64.StdEncoding.EncodeToString(authority)
		if err != nil || cluster.Text(d.Object, "spec", "conversion", "webhook", "clientConfig",
			"caBundle") == bundle {
			return err
		}
		patch := fmt.Appendf(nil, `{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":%q}}}}}`,
			bundle)
		_, err = definitions.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
}

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
}
