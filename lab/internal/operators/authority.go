package operators

import (
	"bytes"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// validating returns a fill that puts the authority into every entry of
// validating webhook configurations that a chart has made.
func (w *world) validating(names ...string) func(ctx context.Context, namespace string, authority []byte) error {
	return func(ctx context.Context, _ string, authority []byte) error {
		configurations := w.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations()
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
