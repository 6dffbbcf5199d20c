package cilium

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// The agents' defaults.
const (
	leasePrefix  = "cilium-l2announce-"
	leaseSeconds = 15
	renewEvery   = 5 * time.Second
)

func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// policy is a CiliumL2AnnouncementPolicy that announces addresses of load balancers.
type policy struct{ services, nodes labels.Selector }

// announce has an agent hold the lease of each Service that a policy selects.
func (c *Cilium) announce(ctx context.Context, nodes []corev1.Node, agents []corev1.Pod) error {
	enabled, err := c.config(ctx, "enable-l2-announcements")
	if err != nil || enabled != "true" {
		return err
	}
	policies, err := c.policies(ctx)
	if err != nil || len(agents) == 0 {
		return err
	}
	services, err := c.services(ctx)
	if err != nil || len(services) == 0 {
		return err
	}
	var errs []error
	for _, s := range services {
		var able []string // the nodes whose agent takes part in the election
		for _, p := range policies {
			for _, n := range nodes {
				runs := func(a corev1.Pod) bool { return a.Spec.NodeName == n.Name && ready(a) }
				if p.services.Matches(labelsOf(s)) && p.nodes.Matches(labels.Set(n.Labels)) &&
					slices.ContainsFunc(agents, runs) {
					able = append(able, n.Name)
				}
			}
		}
		lease := leasePrefix + s.Namespace + "-" + s.Name
		switch {
		case len(policies) == 0:
			errs = append(errs, c.giveUp(ctx, agents[0].Namespace, lease))
		case len(able) > 0 && len(s.Status.LoadBalancer.Ingress) > 0:
			errs = append(errs, c.hold(ctx, agents[0].Namespace, lease, able))
		}
	}
	return errors.Join(errs...)
}

func (c *Cilium) policies(ctx context.Context) (all []policy, _ error) {
	objects, err := c.w.List(ctx, schema.GroupVersionResource{Group: "cilium.io", Version: "v2alpha1",
		Resource: "ciliuml2announcementpolicies"}, "")
	for _, o := range objects {
		if cluster.Nested(o.Object, "spec")["loadBalancerIPs"] != true {
			continue
		}
		services, err := selectorOf(o.Object, "spec", "serviceSelector")
		if err != nil {
			return nil, err
		}
		nodes, err := selectorOf(o.Object, "spec", "nodeSelector")
		if err != nil {
			return nil, err
		}
		all = append(all, policy{services, nodes})
	}
	return all, err
}

// hold renews the lease, or takes it over once its holder has let it expire.
func (c *Cilium) hold(ctx context.Context, namespace, name string, able []string) error {
	slices.SortFunc(able, strings.Compare)
	leases := c.w.Typed.CoordinationV1().Leases(namespace)
	now, seconds := metav1.NewMicroTime(c.w.Now()), int32(leaseSeconds)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err := leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &able[0], LeaseDurationSeconds: &seconds,
				AcquireTime: &now, RenewTime: &now}}, metav1.CreateOptions{})
		return cluster.Unless(err, apierrors.IsAlreadyExists)
	}
	if err != nil {
		return err
	}
	spec := &lease.Spec
	age := leaseSeconds * time.Second
	if spec.RenewTime != nil {
		age = c.w.Now().Sub(spec.RenewTime.Time)
	}
	switch held := spec.HolderIdentity != nil && *spec.HolderIdentity != ""; {
	case held && slices.Contains(able, *spec.HolderIdentity):
		if age < renewEvery {
			return nil
		}
	case held && age < leaseSeconds*time.Second:
		return nil
	default:
		spec.HolderIdentity, spec.AcquireTime = &able[0], &now
	}
	spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return cluster.Unless(err, gone)
}

// giveUp has the holder of a lease release it: no policy has it announce the Service any more.
func (c *Cilium) giveUp(ctx context.Context, namespace, name string) error {
	leases := c.w.Typed.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return cluster.Unless(err, apierrors.IsNotFound)
	}
	nobody := ""
	lease.Spec.HolderIdentity = &nobody
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return cluster.Unless(err, gone)
}
