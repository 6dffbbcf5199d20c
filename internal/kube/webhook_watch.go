package kube

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ladder is what a webhook gate climbs, as far as the API announces it. That a
// server listens and has its handlers is announced by nobody.
type ladder struct {
	configuration string
	probes        []*unstructured.Unstructured
}

// selections are the configurations, the endpoints of every Service that they
// name, and, while they are not served, the kinds of the probes.
func (l ladder) selections(ctx context.Context, a *api) ([]selection, error) {
	var all []selection
	for _, kind := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		all = append(all, selection{in: admissionv1.SchemeGroupVersion.WithResource(kind), name: l.configuration})
	}
	entries, err := a.webhooks(ctx, l.configuration)
	errs := []error{err}
	for _, e := range entries {
		if e.client.Service != nil {
			all = append(all, slicesOf(e.client.Service.Namespace, e.client.Service.Name))
		}
	}
	for _, object := range l.probes {
		_, err := a.resolve(ctx, object.GetAPIVersion(), object.GetKind())
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}
