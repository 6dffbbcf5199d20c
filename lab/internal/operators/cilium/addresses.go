package cilium

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// satisfied is the condition of a Service that got the addresses which it requests.
const satisfied = "cilium.io/IPAMRequestSatisfied"

// announcer is the class of load balancers that agents announce, beside that of Services without one.
const announcer = "io.cilium/l2-announcer"

// Pools is the resource of CiliumLoadBalancerIPPools.
func Pools() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2",
		Resource: "ciliumloadbalancerippools"}
}

// span is a block of a pool.
type span struct{ first, last netip.Addr }

func (s span) contains(a netip.Addr) bool { return s.first.Compare(a) <= 0 && a.Compare(s.last) <= 0 }

// pool is a CiliumLoadBalancerIPPool.
type pool struct {
	object   unstructured.Unstructured
	spans    []span
	selector labels.Selector
	disabled bool
}

// config returns a setting of the ConfigMap that the chart makes.
func (c *Cilium) config(ctx context.Context, name string) (string, error) {
	found, err := c.w.Typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=cilium-config", ResourceVersion: "0"})
	if err != nil || len(found.Items) == 0 {
		return "", err
	}
	return found.Items[0].Data[name], nil
}

// services are the Services whose load balancer is Cilium.
func (c *Cilium) services(ctx context.Context) (all []corev1.Service, _ error) {
	list, err := c.w.Typed.CoreV1().Services("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	for _, s := range list.Items {
		class := s.Spec.LoadBalancerClass
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && (class == nil || *class == announcer) {
			all = append(all, s)
		}
	}
	return all, nil
}

// allocate gives each Service the addresses that it requests, or the first free one.
func (c *Cilium) allocate(ctx context.Context) error {
	enabled, err := c.config(ctx, "enable-lb-ipam")
	if err != nil || enabled != "true" {
		return err
	}
	pools, err := c.pools(ctx)
	if err != nil {
		return err
	}
	services, err := c.services(ctx)
	if err != nil {
		return err
	}
	used := map[netip.Addr]string{}
	for _, s := range services {
		for _, i := range s.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(i.IP); err == nil {
				used[a] = s.Namespace + "/" + s.Name
			}
		}
	}
	var errs []error
	for _, s := range services {
		errs = append(errs, c.satisfy(ctx, s, pools, used))
	}
	for _, p := range pools {
		errs = append(errs, c.count(ctx, p, pools, used))
	}
	return errors.Join(errs...)
}

// satisfy gives a Service its addresses, and tells in a condition why it gets none.
func (c *Cilium) satisfy(ctx context.Context, s corev1.Service, pools []pool,
	used map[netip.Addr]string) error {
	var has []netip.Addr
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil {
			has = append(has, a)
		}
	}
	reason, message := "satisfied", ""
	wanted := strings.FieldsFunc(s.Annotations["lbipam.cilium.io/ips"]+","+
		s.Spec.LoadBalancerIP, //nolint:staticcheck // deprecated, and still served
		func(r rune) bool { return r == ',' || r == ' ' })
	for _, text := range wanted {
		a, err := netip.ParseAddr(text)
		if err != nil || slices.Contains(has, a) {
			continue
		}
		owner, taken := used[a]
		switch within, selects := contains(pools, a, s); {
		case !within:
			reason, message = "no_pool", fmt.Sprintf("No pool exists with a CIDR containing '%s'", a)
		case !selects:
			reason, message = "pool_selector_mismatch",
				fmt.Sprintf("The pool with the CIDR containing '%s', doesn't select this service", a)
		case taken && owner != s.Namespace+"/"+s.Name:
			reason = "already_allocated"
			message = fmt.Sprintf("The IP '%s' is already allocated to another service", a)
		default:
			has = append(has, a)
		}
	}
	if len(wanted) == 0 && len(has) == 0 {
		var a netip.Addr
		if a, reason, message = free(pools, s, used); a.IsValid() {
			has = append(has, a)
		}
	}
	var ingress []corev1.LoadBalancerIngress
	for _, a := range has {
		used[a] = s.Namespace + "/" + s.Name
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	status := metav1.ConditionTrue
	if reason != "satisfied" {
		status = metav1.ConditionFalse
	}
	changed := meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: satisfied, Status: status,
		Reason: reason, Message: message, ObservedGeneration: s.Generation})
	if !changed && len(ingress) == len(s.Status.LoadBalancer.Ingress) {
		return nil
	}
	s.Status.LoadBalancer.Ingress = ingress
	_, err := c.w.Typed.CoreV1().Services(s.Namespace).UpdateStatus(ctx, &s, metav1.UpdateOptions{})
	return cluster.Unless(err, gone)
}

// contains reports whether a pool holds an address, and whether one of these serves the Service.
func contains(pools []pool, a netip.Addr, s corev1.Service) (within, selects bool) {
	for _, p := range pools {
		if slices.ContainsFunc(p.spans, func(b span) bool { return b.contains(a) }) {
			within, selects = true, selects || p.serves(s)
		}
	}
	return within, selects
}

// free is the first free address of the pools that serve a Service; or why there is none.
func free(pools []pool, s corev1.Service, used map[netip.Addr]string) (_ netip.Addr, reason, message string) {
	reason, message = "no_pool", "There are no enabled CiliumLoadBalancerIPPools that match this service"
	for _, p := range pools {
		if p.disabled || !p.serves(s) {
			continue
		}
		for _, b := range p.spans {
			for a := b.first; b.contains(a); a = a.Next() {
				if used[a] == "" {
					return a, "satisfied", ""
				}
			}
		}
		reason = "out_of_ips"
		message = "All enabled CiliumLoadBalancerIPPools that match this service ran out of allocatable IPs"
	}
	return netip.Addr{}, reason, message
}

// serves reports whether the pool's selector selects a Service: by its labels, its namespace and its name.
func (p pool) serves(s corev1.Service) bool { return p.selector.Matches(labelsOf(s)) }

func labelsOf(s corev1.Service) labels.Set {
	return labels.Merge(s.Labels, labels.Set{"io.kubernetes.service.namespace": s.Namespace,
		"io.kubernetes.service.name": s.Name})
}

// pools reads the pools, by name. Pools that conflict give no addresses.
func (c *Cilium) pools(ctx context.Context) ([]pool, error) {
	objects, err := c.w.List(ctx, Pools(), "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(objects, func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	var all []pool
	for _, o := range objects {
		p := pool{object: o, disabled: cluster.Nested(o.Object, "spec")["disabled"] == true}
		if p.selector, err = selectorOf(o.Object, "spec", "serviceSelector"); err != nil {
			return nil, err
		}
		blocks, _, _ := unstructured.NestedSlice(o.Object, "spec", "blocks") //nolint:errcheck // the schema's
		for _, one := range blocks {
			if b, ok := spanOf(one.(map[string]any)); ok {
				p.spans = append(p.spans, b)
			}
		}
		all = append(all, p)
	}
	for i := range all {
		all[i].disabled = all[i].disabled || conflict(all[i], all) != ""
	}
	return all, nil
}

// selectorOf reads a label selector; none selects everything.
func selectorOf(object map[string]any, path ...string) (labels.Selector, error) {
	found := cluster.Nested(object, path...)
	if found == nil {
		return labels.Everything(), nil
	}
	var s metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found, &s); err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(&s)
}

func spanOf(block map[string]any) (span, bool) {
	if p, err := netip.ParsePrefix(cluster.Text(block, "cidr")); err == nil {
		b := span{p.Masked().Addr(), p.Masked().Addr()}
		for a := b.first; p.Contains(a); a = a.Next() { // pools of a lab are small
			b.last = a
		}
		return b, true
	}
	first, err := netip.ParseAddr(cluster.Text(block, "start"))
	last, lastErr := netip.ParseAddr(cluster.Text(block, "stop"))
	if lastErr != nil {
		last = first
	}
	return span{first, last}, err == nil
}

// conflict names an older pool that has an address of this one.
func conflict(p pool, all []pool) string {
	born, name := p.object.GetCreationTimestamp(), p.object.GetName()
	for _, o := range all {
		made, other := o.object.GetCreationTimestamp(), o.object.GetName()
		if other == name || born.Before(&made) || made.Equal(&born) && name < other {
			continue
		}
		for _, b := range o.spans {
			overlaps := func(a span) bool { return a.contains(b.first) || b.contains(a.first) }
			if slices.ContainsFunc(p.spans, overlaps) {
				return other
			}
		}
	}
	return ""
}

// count writes the status of a pool.
func (c *Cilium) count(ctx context.Context, p pool, all []pool, used map[netip.Addr]string) error {
	total, taken := 0, 0
	for _, b := range p.spans {
		for a := b.first; b.contains(a); a = a.Next() {
			total++
			if used[a] != "" {
				taken++
			}
		}
	}
	return c.w.SetStatus(ctx, Pools(), &p.object, func(status map[string]any) {
		generation := p.object.GetGeneration()
		for _, n := range []struct {
			typ   string
			value int
		}{{"IPsTotal", total}, {"IPsAvailable", total - taken}, {"IPsUsed", taken}} {
			c.w.SetCondition(status, "cilium.io/"+n.typ, "Unknown", "noreason", fmt.Sprint(n.value),
				generation)
		}
		if other := conflict(p, all); other != "" {
			c.w.SetCondition(status, "cilium.io/PoolConflict", "True", "cidr_overlap",
				fmt.Sprintf("Pool conflicts since CIDR overlaps CIDRs from IP Pool '%s'", other), generation)
		} else if cluster.ConditionOf(p.object.Object, "cilium.io/PoolConflict") == "True" {
			c.w.SetCondition(status, "cilium.io/PoolConflict", "False", "resolved", "", generation)
		}
	})
}
