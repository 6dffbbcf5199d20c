package operators

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// addressPool is an IPAddressPool.
type addressPool struct {
	object      unstructured.Unstructured
	name        string
	blocks      []block
	auto, avoid bool
	// allocation is serviceAllocation: a pool that has one serves only the Services that it selects.
	allocation *serviceAllocation
}

type serviceAllocation struct {
	priority   int64
	namespaces []string
	services   []labels.Selector
}

// addressPools reads the pools, by name. MetalLB's webhook has validated their addresses.
func addressPools(ctx context.Context, w *cluster.View) (all []*addressPool, _ error) {
	objects, err := w.List(ctx, pools(), "")
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		spec := cluster.Nested(o.Object, "spec")
		p := &addressPool{object: o, name: o.GetName(), auto: spec["autoAssign"] != false,
			avoid: spec["avoidBuggyIPs"] == true}
		texts, _, _ := unstructured.NestedStringSlice(spec, "addresses") //nolint:errcheck // the schema's
		for _, text := range texts {
			blocks, _ := parseBlocks(text) //nolint:errcheck // the webhook's
			p.blocks = append(p.blocks, blocks...)
		}
		if found := cluster.Nested(spec, "serviceAllocation"); found != nil {
			if p.allocation, err = allocation(ctx, w, found); err != nil {
				return nil, cluster.About("IPAddressPool "+p.name, err)
			}
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *addressPool) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

func allocation(ctx context.Context, w *cluster.View, object map[string]any) (*serviceAllocation, error) {
	var s struct {
		Priority           int64                  `json:"priority"`
		Namespaces         []string               `json:"namespaces"`
		NamespaceSelectors []metav1.LabelSelector `json:"namespaceSelectors"`
		ServiceSelectors   []metav1.LabelSelector `json:"serviceSelectors"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &s); err != nil {
		return nil, err
	}
	a := &serviceAllocation{priority: s.Priority, namespaces: s.Namespaces}
	for _, one := range s.ServiceSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&one)
		if err != nil {
			return nil, err
		}
		a.services = append(a.services, selector)
	}
	for _, one := range s.NamespaceSelectors {
		found, err := w.Typed.CoreV1().Namespaces().List(ctx,
			metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&one)})
		if err != nil {
			return nil, err
		}
		for _, n := range found.Items {
			a.namespaces = append(a.namespaces, n.Name)
		}
	}
	return a, nil
}

// has reports whether a pool may give an address. avoidBuggyIPs excludes those that end in 0 or 255.
func (p *addressPool) has(a netip.Addr) bool {
	if p.avoid && a.Is4() && (a.As4()[3] == 0 || a.As4()[3] == 255) {
		return false
	}
	return slices.ContainsFunc(p.blocks, func(b block) bool { return b.Contains(a) })
}

// serves reports whether a pool's serviceAllocation allows a Service.
func (p *addressPool) serves(s *corev1.Service) bool {
	if p.allocation == nil {
		return true
	}
	of := p.allocation
	return (len(of.namespaces) == 0 || slices.Contains(of.namespaces, s.Namespace)) &&
		(len(of.services) == 0 || slices.ContainsFunc(of.services,
			func(one labels.Selector) bool { return one.Matches(labels.Set(s.Labels)) }))
}

// pinned reports whether a pool is for this Service before others. One that selects nothing is for none.
func (p *addressPool) pinned(s *corev1.Service) bool {
	return p.auto && p.allocation != nil && p.serves(s) &&
		len(p.allocation.namespaces)+len(p.allocation.services) > 0
}

// rank orders pinned pools: the lowest priority goes first, and none is the last.
func (p *addressPool) rank() int64 {
	if p.allocation.priority == 0 {
		return math.MaxInt64
	}
	return p.allocation.priority
}

// poolOf is the pool that has all these addresses.
func poolOf(pools []*addressPool, addresses []netip.Addr) *addressPool {
	for _, p := range pools {
		if !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return !p.has(a) }) {
			return p
		}
	}
	return nil
}

// named is the pool of a name.
func named(pools []*addressPool, name string) *addressPool {
	i := slices.IndexFunc(pools, func(p *addressPool) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return pools[i]
}

// use is a Service's use of an address. Services share one if they name the same key, their ports differ,
// and externalTrafficPolicy Local leads to the same Pods.
type use struct {
	service, sharing, backend string
	ports                     []string
}

func useOf(s *corev1.Service) use {
	c := use{service: s.Namespace + "/" + s.Name, sharing: annotation(s, "allow-shared-ip")}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		c.backend = labels.Set(s.Spec.Selector).String()
	}
	for _, p := range s.Spec.Ports {
		c.ports = append(c.ports, fmt.Sprintf("%s/%d", p.Protocol, p.Port))
	}
	return c
}

// uses are those of all Services, by address.
type uses map[netip.Addr][]use

// refuse returns why a Service may not have an address; nil if it may.
func (all uses) refuse(a netip.Addr, wanted use) error {
	var others []string
	shared := true
	for _, c := range all[a] {
		if c.service == wanted.service {
			continue
		}
		others = append(others, c.service)
		shared = shared && c.sharing != "" && c.sharing == wanted.sharing && c.backend == wanted.backend
		for _, port := range wanted.ports {
			if shared && slices.Contains(c.ports, port) {
				return fmt.Errorf("port %s is already in use on %q", port, a)
			}
		}
	}
	if !shared {
		return fmt.Errorf("can't change sharing key for %q, address also in use by %s", wanted.service,
			strings.Join(others, ","))
	}
	return nil
}

// drop ends the uses of a Service.
func (all uses) drop(service string) {
	for a := range all {
		all[a] = slices.DeleteFunc(all[a], func(c use) bool { return c.service == service })
	}
}

// free returns the first free address of each family in a pool, where there is one.
func (all uses) free(p *addressPool, wanted use) (four, six netip.Addr) {
	for _, b := range p.blocks {
		found := &four
		if b.Addr().Is6() {
			found = &six
		}
		for a := b.Addr(); !found.IsValid() && b.Contains(a); a = a.Next() {
			if p.has(a) && all.refuse(a, wanted) == nil {
				*found = a
			}
		}
	}
	return four, six
}

// count writes the status of a pool.
func (m *metalLB) count(ctx context.Context, p *addressPool, all uses) error {
	assigned, total := [2]int64{}, [2]int64{} // IPv4, IPv6
	family := func(a netip.Addr) int {
		if a.Is4() {
			return 0
		}
		return 1
	}
	for _, b := range p.blocks {
		bits, of := b.Addr().BitLen()-b.Bits(), &total[family(b.Addr())]
		switch {
		case bits >= 62 || *of == math.MaxInt64:
			*of = math.MaxInt64
			continue
		case p.avoid && b.Addr().Is4() && bits >= 8:
			*of -= 2 << (bits - 8)
		case !p.has(b.Addr()) || !p.has(b.end()):
			*of--
		}
		*of += 1 << bits
	}
	for a, users := range all {
		if len(users) > 0 && p.has(a) {
			assigned[family(a)]++
		}
	}
	return m.w.SetStatus(ctx, pools(), &p.object, func(status map[string]any) {
		for i, name := range []string{"IPv4", "IPv6"} {
			status["assigned"+name], status["available"+name] = assigned[i], total[i]-assigned[i]
		}
	})
}
