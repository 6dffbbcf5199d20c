package operators

import (
	"bytes"
	"context"
	"errors"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const (
	validator = "longhorn-webhook-validator"
	mutator   = "longhorn-webhook-mutator"
)

func longhornKind(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: resource}
}

// configure creates the webhook configurations with their caBundle, because no chart contains them.
func (l *longhorn) configure(ctx context.Context, namespace string, authority []byte) error {
	api := l.w.Typed.AdmissionregistrationV1()
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	client := func(path string) admissionv1.WebhookClientConfig {
		port := int32(l.h.port)
		return admissionv1.WebhookClientConfig{CABundle: authority,
			Service: &admissionv1.ServiceReference{Namespace: namespace, Name: l.h.service, Path: &path,
				Port: &port}}
	}
	rules := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule: admissionv1.Rule{APIGroups: []string{"longhorn.io"}, APIVersions: []string{"v1beta2"},
			Resources: []string{
				"nodes",
				"volumes",
				"settings",
				"recurringjobs",
				"backuptargets",
				"backupvolumes",
				"backups",
				"snapshots",
				"engineimages",
			}},
	}, {
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule: admissionv1.Rule{APIGroups: []string{"longhorn.io"}, APIVersions: []string{"v1beta2"},
			Resources: []string{"nodes", "backuptargets"}},
	}}
	mutating := &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: mutator},
		Webhooks: []admissionv1.MutatingWebhook{{Name: "mutator.longhorn.io",
			ClientConfig: client("/v1/webhook/mutation"), Rules: rules,
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}},
	}
	validating := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: validator},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "validator.longhorn.io",
			ClientConfig: client("/v1/webhook/validation"), Rules: rules,
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}},
	}
	have, err := api.ValidatingWebhookConfigurations().Get(ctx, validator, metav1.GetOptions{})
	if err == nil && len(have.Webhooks) == 1 &&
		bytes.Equal(have.Webhooks[0].ClientConfig.CABundle, authority) {
		return nil
	}
	if err := cluster.Unless(err, apierrors.IsNotFound); err != nil {
		return err
	}
	// The second one marks both as done.
	if err := createOrUpdate(ctx, api.MutatingWebhookConfigurations(), mutating); err != nil {
		return err
	}
	return createOrUpdate(ctx, api.ValidatingWebhookConfigurations(), validating)
}

// writer is a client for one kind of objects.
type writer[T metav1.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
}

// createOrUpdate creates an object, or updates the one of its name.
func createOrUpdate[T metav1.Object](ctx context.Context, api writer[T], object T) error {
	have, err := api.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	object.SetResourceVersion(have.GetResourceVersion())
	_, err = api.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

func (l *longhorn) unconfigure(ctx context.Context) error {
	api := l.w.Typed.AdmissionregistrationV1()
	return errors.Join(
		cluster.Unless(api.MutatingWebhookConfigurations().Delete(ctx, mutator, metav1.DeleteOptions{}),
			apierrors.IsNotFound),
		cluster.Unless(api.ValidatingWebhookConfigurations().Delete(ctx, validator, metav1.DeleteOptions{}),
			apierrors.IsNotFound),
	)
}

// remove takes away what no namespace takes with it; outside, the chart's
// uninstall job does.
func (l *longhorn) remove(ctx context.Context) error {
	return errors.Join(
		l.unconfigure(ctx),
		cluster.Unless(l.w.Typed.StorageV1().StorageClasses().Delete(ctx, "longhorn", metav1.DeleteOptions{}),
			apierrors.IsNotFound),
		cluster.Unless(l.w.Typed.StorageV1().CSIDrivers().Delete(ctx, driver, metav1.DeleteOptions{}),
			apierrors.IsNotFound),
	)
}
