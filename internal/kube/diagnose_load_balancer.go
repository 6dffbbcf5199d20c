package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// loadBalancer explains a Service without its address: what its load balancer
// says, whether there are addresses to give away, and MetalLB's Pods.
func (q *inquiry) loadBalancer(ctx context.Context, v gate.Values) {
	namespace, name := v.String("namespace"), v.String("service")
	s := selection{in: corev1.SchemeGroupVersion.WithResource("services"), namespace: namespace, name: name}
	object, sure := q.get(ctx, s, "Service")
	if object == nil {
		if sure {
			q.absent(ctx, "Service", namespace, name, unmade)
		}
		return
	}
	if kind := text(object, "spec", "type"); kind != "LoadBalancer" {
		q.because(fmt.Sprintf("%s is of type %s: only one of type LoadBalancer gets an address", title(object), kind))
	}
	for _, e := range about(q.events(ctx, namespace), "Service", name) {
		q.because(fmt.Sprintf("%s gets no address: %s", title(object), brief(e.message)))
	}
	pools, err := q.a.listIn(ctx, "metallb.io", "IPAddressPool", "")
	if absent := (notServed{}); errors.As(err, &absent) {
		q.because("the cluster has no MetalLB, so that nobody gives addresses to Services")
		return
	}
	if err != nil {
		q.miss("IPAddressPools", err)
	}
	for i := range pools {
		q.object(&pools[i])
	}
	q.pods(ctx, "", "app.kubernetes.io/name=metallb")
	if err == nil && len(pools) == 0 {
		q.because("MetalLB has no IPAddressPool to take an address from", "kubectl get ipaddresspools.metallb.io -A")
	}
	if class := text(object, "spec", "loadBalancerClass"); class != "" {
		q.because(fmt.Sprintf("%s asks for the load balancer class %s, which may be nobody's", title(object), class))
	}
}
