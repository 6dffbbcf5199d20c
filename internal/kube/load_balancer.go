package kube

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// loadBalancer asks whether a Service can be reached where it was meant to be.
// That it has some address proves little: who asked for a certain one has told
// it to others, and an announcer that may not hand it out takes another.
func loadBalancer() gate.Type {
	return gate.Type{
		Name:       "load_balancer",
		Summary:    "a Service of type LoadBalancer has the address that was asked for",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"namespace": {Type: cty.String, Required: true, Valid: validName, Help: "the Service's namespace"},
			"service":   {Type: cty.String, Required: true, Valid: validName, Help: "the Service's name"},
			"address":   {Type: cty.String, Valid: validIP, Help: "the IP address that it has to have; if absent, what the Service itself asks for, or else any"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			c := newCluster(target, "")
			what := selection{in: corev1.SchemeGroupVersion.WithResource("services"), namespace: v.String("namespace"), name: v.String("service")}
			return gate.Gate{
				Name: name,
				Check: c.ask(func(ctx context.Context, a *api) error {
					object, err := a.get(ctx, what.in, what.namespace, what.name)
					if apierrors.IsNotFound(err) {
						return fmt.Errorf("%s does not exist yet", titled("service", what.namespace, what.name))
					}
					if err != nil {
						return err
					}
					service, err := as[corev1.Service](*object)
					if err != nil {
						return err
					}
					if why := judgeService(service, v.String("address")); why != "" {
						return fmt.Errorf("%s: %s", title(object), why)
					}
					return nil
				}),
				Changed: c.changes(always(what)),
			}, nil
		},
	}
}

func validIP(x cty.Value) error {
	if _, err := netip.ParseAddr(x.AsString()); err != nil {
		return fmt.Errorf("%q is no IP address", x.AsString())
	}
	return nil
}

// judgeService says why a Service cannot be reached as it should; empty if it can.
func judgeService(service corev1.Service, address string) string {
	var has, lacks []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		has = append(has, cmp.Or(ingress.IP, ingress.Hostname))
	}
	asked := []string{address}
	if address == "" {
		asked = askedFor(service)
	}
	for _, want := range asked {
		if !slices.ContainsFunc(has, func(one string) bool { return sameAddress(one, want) }) {
			lacks = append(lacks, want)
		}
	}
	switch {
	case service.DeletionTimestamp != nil:
		return "is being deleted"
	case service.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return fmt.Sprintf("is of type %s, not LoadBalancer", cmp.Or(service.Spec.Type, corev1.ServiceTypeClusterIP))
	case len(has) == 0 && len(asked) == 0:
		return "has no address yet"
	case len(has) == 0:
		return "has no address yet, and asks for " + strings.Join(asked, ", ")
	case len(lacks) > 0:
		return fmt.Sprintf("has %s, not %s", strings.Join(has, ", "), strings.Join(lacks, ", "))
	}
	return ""
}

// askedFor is what the Service itself asks for: MetalLB's annotation, by its
// present and its former name, or the field that came before both.
func askedFor(service corev1.Service) []string {
	list := cmp.Or(service.Annotations["metallb.io/loadBalancerIPs"], service.Annotations["metallb.universe.tf/loadBalancerIPs"],
		service.Spec.LoadBalancerIP) //nolint:staticcheck // deprecated, and still what many charts set
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// sameAddress compares what may be written in several ways.
func sameAddress(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return a == b
	}
	return x.Unmap() == y.Unmap()
}
