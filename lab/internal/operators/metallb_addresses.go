package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// MetalLB's annotations of Services, after either prefix; the second one is the former.
const (
	annotations        = "metallb.io/"
	formerAnnotations  = "metallb.universe.tf/"
	allocatedFrom      = annotations + "ip-allocated-from-pool"
	requestedAddresses = annotations + "loadBalancerIPs"
)

func annotation(s *corev1.Service, name string) string {
	if text, is := s.Annotations[annotations+name]; is {
		return text
	}
	return s.Annotations[formerAnnotations+name]
}

// assign gives Services of type LoadBalancer their addresses.
func (m *metalLB) assign(ctx context.Context, class string) error {
	pools, err := addressPools(ctx, m.w)
	if err != nil {
		return err
	}
	list, err := m.w.Typed.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	all := uses{}
	var services []*corev1.Service
	for i := range list.Items {
		s := &list.Items[i]
		of := ""
		if s.Spec.LoadBalancerClass != nil {
			of = *s.Spec.LoadBalancerClass
		}
		if of != class {
			continue
		}
		services = append(services, s)
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			for _, a := range assigned(s) {
				all[a] = append(all[a], useOf(s))
			}
		}
	}
	slices.SortStableFunc(services, func(a, b *corev1.Service) int { // the oldest is served first
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	var errs []error
	for _, s := range services {
		errs = append(errs, cluster.About("service "+s.Namespace+"/"+s.Name,
			m.settle(ctx, &allocator{s: s, pools: pools, all: all, wanted: useOf(s)})))
	}
	for _, p := range pools {
		errs = append(errs, m.count(ctx, p, all))
	}
	return errors.Join(errs...)
}

// assigned are the addresses in the status of a Service.
func assigned(s *corev1.Service) (all []netip.Addr) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// settle writes what the allocator decides about a Service, and its events. A refusal is an event once.
func (m *metalLB) settle(ctx context.Context, a *allocator) error {
	s, before := a.s, assigned(a.s)
	after, events := a.decide()
	pool := ""
	if a.all.drop(a.wanted.service); len(after) > 0 {
		pool = poolOf(a.pools, after).name
		for _, one := range after {
			a.all[one] = append(a.all[one], a.wanted)
		}
	}
	if !slices.Equal(before, after) || s.Annotations[allocatedFrom] != pool {
		s.Status.LoadBalancer.Ingress = nil
		for _, one := range after {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: one.String()})
		}
		delete(s.Annotations, allocatedFrom)
		if pool != "" {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, allocatedFrom, pool)
		}
		_, err := m.w.Typed.CoreV1().Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone, or changed: the next look sees it as it is then
		}
		if err != nil {
			return err
		}
		for name := range s.Annotations {
			if strings.HasPrefix(name, formerAnnotations) {
				events = append(events, event{warning: true, reason: "deprecatedAnnotation",
					message: "Service uses deprecated annotation " + name})
			}
		}
	}
	if last := fmt.Sprint(events); m.told[s.UID] == last {
		return nil
	} else if m.told[s.UID] = last; len(events) == 0 {
		delete(m.told, s.UID)
	}
	var errs []error
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name,
		UID: s.UID}
	for _, e := range events {
		record := m.w.Inform
		if e.warning {
			record = m.w.Warn
		}
		errs = append(errs, record(ctx, about, "metallb-controller", e.reason, e.message))
	}
	return errors.Join(errs...)
}

// event is one that MetalLB's controller records about a Service.
type event struct {
	warning         bool
	reason, message string
}

// allocator decides about one Service. Errors and messages are MetalLB's.
type allocator struct {
	s      *corev1.Service
	pools  []*addressPool
	all    uses
	wanted use
}

// The families of addresses, in MetalLB's words.
const (
	four = "ipv4"
	six  = "ipv6"
	dual = "dual"
)

// familyOf is the family of one or two addresses.
func familyOf(all []netip.Addr) (string, error) {
	switch {
	case len(all) == 1 && all[0].Is4():
		return four, nil
	case len(all) == 1:
		return six, nil
	case len(all) != 2:
		return "unknown", fmt.Errorf("IPFamilyForAddresses: invalid ips length %d %q", len(all), all)
	case all[0].Is4() == all[1].Is4():
		return "unknown", fmt.Errorf("IPFamilyForAddresses: same address family %q", all)
	}
	return dual, nil
}

// decide returns the addresses that a Service is to have, and the events on the way.
func (a *allocator) decide() (has []netip.Addr, events []event) {
	note := func(warning bool, reason, format string, values ...any) {
		events = append(events, event{warning, reason, fmt.Sprintf(format, values...)})
	}
	family, err := a.family()
	if a.s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(a.pools) == 0 || err != nil {
		return nil, nil
	}
	prefers := a.policy() == corev1.IPFamilyPolicyPreferDualStack
	if a.policy() == corev1.IPFamilyPolicyRequireDualStack && family != dual {
		note(true, "not enough clusterips", "Service requires dual stack but not enough clusterips %v",
			a.s.Spec.ClusterIPs)
		return nil, events
	}
	if has = assigned(a.s); len(has) > 0 {
		requested, err := a.requested()
		if err != nil {
			note(true, "LoadBalancerFailed", "invalid requested loadbalancer IPs: %s", err)
			return has, events
		}
		of, _ := familyOf(has) //nolint:errcheck // an unknown one differs
		pool := annotation(a.s, "address-pool")
		if err := a.allowed(has); err != nil {
			note(false, "ClearAssignment", "current IP for %q not allowed by config, will attempt for new "+
				"IP assignment: %s", a.wanted.service, err)
			has = nil
		} else if of != family && (!prefers || family != dual) ||
			pool != "" && poolOf(a.pools, has).name != pool || len(requested) > 0 && !same(requested, has) {
			has = nil
		}
	}
	if len(has) == 1 && prefers && family == dual {
		more, err := a.complete(has[0])
		if err != nil {
			note(false, "AdditionalAssignFailed", "cannot assign additional IP in PreferDualStack: %s", err)
			return has, events
		}
		note(false, "IPAllocated", "Assigned additional IP %q", more)
		return append(has, more), events
	}
	if len(has) == 0 {
		if has, err = a.allocate(family); err != nil {
			note(true, "AllocationFailed", "Failed to allocate IP for %q: %s", a.wanted.service, err)
			return nil, events
		}
		note(false, "IPAllocated", "Assigned IP %q", has)
	}
	return has, events
}

func same(a, b []netip.Addr) bool {
	byAddress := netip.Addr.Compare
	return slices.Equal(slices.SortedFunc(slices.Values(a), byAddress), slices.SortedFunc(slices.Values(b),
		byAddress))
}

func (a *allocator) policy() corev1.IPFamilyPolicy {
	if a.s.Spec.IPFamilyPolicy == nil {
		return corev1.IPFamilyPolicySingleStack
	}
	return *a.s.Spec.IPFamilyPolicy
}

// family is that of the Service's own addresses in the cluster.
func (a *allocator) family() (string, error) {
	var all []netip.Addr
	for _, text := range a.s.Spec.ClusterIPs {
		one, err := netip.ParseAddr(text)
		if err != nil {
			return "", err
		}
		all = append(all, one)
	}
	return familyOf(all)
}

// requested are the addresses that the annotation or spec.loadBalancerIP names.
func (a *allocator) requested() (all []netip.Addr, _ error) {
	text, field := annotation(a.s, "loadBalancerIPs"),
		a.s.Spec.LoadBalancerIP //nolint:staticcheck // deprecated, and still served
	switch {
	case text != "" && field != "":
		return nil, errors.New("service can not have both " + requestedAddresses +
			" and svc.Spec.LoadBalancerIP")
	case text == "" && field == "":
		return nil, nil
	case field != "":
		one, err := netip.ParseAddr(field)
		if err != nil {
			return nil, fmt.Errorf("invalid spec.loadBalancerIP %q", field)
		}
		return []netip.Addr{one}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		one, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("invalid %s: %q", requestedAddresses, text)
		}
		all = append(all, one)
	}
	_, err := familyOf(all)
	return all, err
}

// allowed returns why a Service may not have these addresses; nil if it may.
func (a *allocator) allowed(all []netip.Addr) error {
	p := poolOf(a.pools, all)
	if p == nil {
		return fmt.Errorf("%q is not allowed in config", all)
	}
	if !p.serves(a.s) {
		return fmt.Errorf("pool %s not compatible for ip assignment", p.name)
	}
	for _, one := range all {
		if err := a.all.refuse(one, a.wanted); err != nil {
			return err
		}
	}
	return nil
}

// complete finds the address of the other family in the pool of the first one.
func (a *allocator) complete(has netip.Addr) (netip.Addr, error) {
	p := poolOf(a.pools, []netip.Addr{has})
	more, other := a.all.free(p, a.wanted)
	if has.Is4() {
		more = other
	}
	if !more.IsValid() {
		return more, fmt.Errorf("[%q %q] is not allowed in config", has, "<nil>")
	}
	return more, nil
}

// allocate returns the addresses that the Service requests, or free ones.
func (a *allocator) allocate(family string) ([]netip.Addr, error) {
	requested, err := a.requested()
	if err != nil {
		return nil, err
	}
	wanted := annotation(a.s, "address-pool")
	if len(requested) > 0 {
		if of, _ := familyOf(requested); of != family { //nolint:errcheck // requested has checked it
			return nil, fmt.Errorf("requested loadBalancer IP(s) %q does not match the ipFamily of the "+
				"service", requested)
		}
		if err := a.allowed(requested); err != nil {
			return nil, err
		}
		if wanted != "" && poolOf(a.pools, requested).name != wanted {
			return nil, fmt.Errorf("requested loadBalancer IP(s) %q is not compatible with requested "+
				"address pool %s", requested, wanted)
		}
		return requested, nil
	}
	if wanted != "" {
		return a.from(named(a.pools, wanted), wanted, family)
	}
	var pinned, open []*addressPool
	for _, p := range a.pools {
		if p.pinned(a.s) {
			pinned = append(pinned, p)
		} else if p.auto && p.allocation == nil {
			open = append(open, p)
		}
	}
	slices.SortStableFunc(pinned, func(a, b *addressPool) int {
		return cmp.Compare(a.rank(), b.rank())
	})
	for _, pools := range [][]*addressPool{pinned, open} {
		if found := a.best(pools, family); len(found) > 0 {
			return found, nil
		}
	}
	return nil, errors.New("no available IPs")
}

// from allocates in the pool that a Service requests. MetalLB v0.15.3 words a lack of addresses so.
func (a *allocator) from(p *addressPool, name, family string) ([]netip.Addr, error) {
	if p == nil {
		return nil, fmt.Errorf("unknown pool %q", name)
	}
	found := a.choose(p, family, a.policy() == corev1.IPFamilyPolicyPreferDualStack)
	switch {
	case len(found) == 0 && family == dual:
		return nil, fmt.Errorf("no available IPs in pool %s for %s IPFamily", name, family)
	case len(found) == 0:
		return nil, fmt.Errorf("[%q] is not allowed in config", "<nil>")
	}
	return found, a.allowed(found)
}

// best allocates in the first pool that has what the family needs. A Service that prefers both families
// takes one if no pool has both: that of its first family, where possible.
func (a *allocator) best(pools []*addressPool, family string) []netip.Addr {
	for _, p := range pools {
		if found := a.choose(p, family, false); len(found) > 0 {
			return found
		}
	}
	if family != dual || a.policy() != corev1.IPFamilyPolicyPreferDualStack {
		return nil
	}
	first := []string{four, six}
	if f := a.s.Spec.IPFamilies; len(f) > 0 && f[0] == corev1.IPv6Protocol {
		first = []string{six, four}
	}
	for _, one := range first {
		for _, p := range pools {
			if found := a.choose(p, one, false); len(found) > 0 {
				return found
			}
		}
	}
	return nil
}

// choose returns the free addresses of a pool for a family; some instead of both if either will do.
func (a *allocator) choose(p *addressPool, family string, either bool) []netip.Addr {
	v4, v6 := a.all.free(p, a.wanted)
	var found []netip.Addr
	if family != six && v4.IsValid() {
		found = append(found, v4)
	}
	if family != four && v6.IsValid() {
		found = append(found, v6)
	}
	if family == dual && len(found) == 1 && !either {
		return nil
	}
	return found
}
