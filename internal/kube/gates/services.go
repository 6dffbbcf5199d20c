package gates

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// endpointSlice checks that a Service has an endpoint. That proves only that a pod's readiness probe passed;
// the webhook gate checks that a webhook answers.
func endpointSlice() definition {
	return definition{gate.Type{
		Name:    "endpoint_slice",
		Summary: "a Service has at least one ready endpoint",
		Attributes: map[string]gate.Attribute{
			"namespace": {Type: cty.String, Required: true, Valid: validName,
				Help: "the Service's namespace"},
			"service": {Type: cty.String, Required: true, Valid: validName, Help: "the Service's name"},
		},
	}, func(v gate.Values) (Checker, error) {
		return Service{v.String("namespace"), v.String("service")}, nil
	}}
}

// Service is a Service, of which the Checker requires an endpoint.
type Service struct{ Namespace, Name string }

// Selections are the Service's slices.
func (s Service) Selections(context.Context, *client.API) ([]client.Selection, error) {
	return []client.Selection{s.Slices()}, nil
}

// Slices selects the Service's EndpointSlices.
func (s Service) Slices() client.Selection {
	return client.Selection{
		Resource:  discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		Namespace: s.Namespace,
		Labels:    discoveryv1.LabelServiceName + "=" + s.Name,
	}
}

// Object selects the Service itself.
func (s Service) Object() client.Selection {
	return client.Selection{Resource: client.Core("services"), Namespace: s.Namespace, Name: s.Name}
}

// Check requires one ready endpoint among all of a Service's slices: it has one for each address family and
// for each hundred endpoints.
func (s Service) Check(ctx context.Context, a *client.API) error {
	slices, err := client.ListAs[discoveryv1.EndpointSlice](ctx, a, s.Slices(), "EndpointSlice")
	if err != nil {
		return err
	}
	ready, all := 0, 0
	for _, slice := range slices {
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
	what := client.Titled("service", s.Namespace, s.Name)
	switch {
	case all == 0:
		if _, err := a.Get(ctx, s.Object(), "Service"); err != nil {
			return err
		}
		return fmt.Errorf("%s: no endpoints yet", what)
	case ready == 0:
		return fmt.Errorf("%s: 0 of %d endpoints ready", what, all)
	}
	return nil
}

// isReady reads absence as the API defines it: unknown readiness counts as ready, unknown termination as
// none.
func isReady(c discoveryv1.EndpointConditions) bool {
	ready := c.Ready == nil || *c.Ready
	terminating := c.Terminating != nil && *c.Terminating
	return ready && !terminating
}

// loadBalancer checks that a Service has the address that it was meant to have. Just any address proves
// little: others were given the requested one, and an announcer that may not use it takes another.
func loadBalancer() definition {
	return definition{gate.Type{
		Name:    "load_balancer",
		Summary: "a Service of type LoadBalancer has the requested address",
		Attributes: map[string]gate.Attribute{
			"namespace": {Type: cty.String, Required: true, Valid: validName,
				Help: "the Service's namespace"},
			"service": {Type: cty.String, Required: true, Valid: validName, Help: "the Service's name"},
			"address": {Type: cty.String, Valid: validIP,
				Help: "the IP address that it has to have; default the one that the Service itself " +
					"requests, or else any"},
		},
	}, func(v gate.Values) (Checker, error) {
		return balanced{Service{v.String("namespace"), v.String("service")}, v.String("address")}, nil
	}}
}

func validIP(x cty.Value) error {
	if _, err := netip.ParseAddr(x.AsString()); err != nil {
		return fmt.Errorf("%q is not an IP address", x.AsString())
	}
	return nil
}

// balanced is a load_balancer gate's arguments.
type balanced struct {
	service Service
	address string
}

func (b balanced) Selections(context.Context, *client.API) ([]client.Selection, error) {
	return []client.Selection{b.service.Object()}, nil
}

func (b balanced) Check(ctx context.Context, a *client.API) error {
	object, err := a.Get(ctx, b.service.Object(), "Service")
	if err != nil {
		return err
	}
	if err := terminating(object); err != nil {
		return err
	}
	service, err := client.As[corev1.Service](*object)
	if err != nil {
		return err
	}
	var has, lacks []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		has = append(has, cmp.Or(ingress.IP, ingress.Hostname))
	}
	requested := []string{b.address}
	if b.address == "" {
		requested = requestedAddresses(service)
	}
	for _, want := range requested {
		if !slices.ContainsFunc(has, func(one string) bool { return sameAddress(one, want) }) {
			lacks = append(lacks, want)
		}
	}
	what := client.Title(object)
	switch {
	case service.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return problem(WrongType, what, "is of type %s, not LoadBalancer",
			cmp.Or(service.Spec.Type, corev1.ServiceTypeClusterIP))
	case len(has) == 0 && len(requested) == 0:
		return fmt.Errorf("%s: has no address yet", what)
	case len(has) == 0:
		return fmt.Errorf("%s: has no address yet, and requests %s", what, strings.Join(requested, ", "))
	case len(lacks) > 0:
		return fmt.Errorf("%s: has %s, not %s", what, strings.Join(has, ", "), strings.Join(lacks, ", "))
	}
	return nil
}

// requestedAddresses are the addresses that the Service itself requests: MetalLB's annotation, by its
// present and its former name, or the field that came before both.
func requestedAddresses(service corev1.Service) []string {
	list := cmp.Or(service.Annotations["metallb.io/loadBalancerIPs"],
		service.Annotations["metallb.universe.tf/loadBalancerIPs"],
		service.Spec.LoadBalancerIP) //nolint:staticcheck // deprecated, and still what many charts set
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// sameAddress compares addresses that may be written in several ways.
func sameAddress(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return a == b
	}
	return x.Unmap() == y.Unmap()
}
