package kube

import (
	"context"
	"fmt"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// endpointSlice asks whether a Service leads anywhere. It says that a pod's
// readiness probe passed and no more; a webhook that must answer is a matter
// for the webhook gate.
func endpointSlice() gate.Type {
	return gate.Type{
		Name:       "endpoint_slice",
		Summary:    "a Service has at least one ready endpoint",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"namespace": {Type: cty.String, Required: true, Valid: validName, Help: "the Service's namespace"},
			"service":   {Type: cty.String, Required: true, Valid: validName, Help: "the Service's name"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			c, namespace, service := newCluster(target, ""), v.String("namespace"), v.String("service")
			return gate.Gate{
				Name: name,
				Check: c.ask(func(ctx context.Context, a *api) error {
					return a.leadsSomewhere(ctx, namespace, service)
				}),
				Changed: c.changes(always(slicesOf(namespace, service))),
			}, nil
		},
	}
}

func slicesOf(namespace, service string) selection {
	return selection{
		in:        discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		namespace: namespace,
		labels:    discoveryv1.LabelServiceName + "=" + service,
	}
}

// leadsSomewhere wants one ready endpoint among all of a Service's slices: it
// has one for each address family and for each hundred endpoints.
func (a *api) leadsSomewhere(ctx context.Context, namespace, service string) error {
	s := slicesOf(namespace, service)
	items, err := a.list(ctx, s.in, s.namespace, s.labels)
	if err != nil {
		return err
	}
	ready, all := 0, 0
	for _, item := range items {
		slice, err := as[discoveryv1.EndpointSlice](item)
		if err != nil {
			return err
		}
		if slice.DeletionTimestamp != nil {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			all++
			if isReady(endpoint.Conditions) {
				ready++
			}
		}
	}
	what := titled("service", namespace, service)
	switch {
	case all == 0:
		_, err := a.get(ctx, corev1.SchemeGroupVersion.WithResource("services"), namespace, service)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%s does not exist yet", what)
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%s: no endpoints yet", what)
	case ready == 0:
		return fmt.Errorf("%s: 0 of %d endpoints ready", what, all)
	}
	return nil
}

// isReady reads absence as the API defines it: unknown readiness counts as ready, unknown termination as none.
func isReady(c discoveryv1.EndpointConditions) bool {
	ready := c.Ready == nil || *c.Ready
	terminating := c.Terminating != nil && *c.Terminating
	return ready && !terminating
}
