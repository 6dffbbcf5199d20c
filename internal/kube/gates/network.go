package gates

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// networkPolicy checks that no policy cuts off the Pods of a namespace. Policies add up: one that allows
// nothing does not matter beside one that allows something, so that a default denial with exceptions is open.
// The API does not tell whether the cluster's network enforces policies.
func networkPolicy() definition {
	return definition{gate.Type{
		Name:    "network_policy",
		Summary: "no NetworkPolicy denies the Pods of a namespace all traffic",
		Attributes: map[string]gate.Attribute{
			"namespace": required(named("the Pods' namespace")),
		},
	}, func(v gate.Values) (Check, error) {
		return func(ctx context.Context, a *client.API) error {
			policies, err := client.ListAs[networkingv1.NetworkPolicy](ctx, a, client.Selection{
				Resource:  networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
				Namespace: v.String("namespace")}, "NetworkPolicy")
			if err != nil {
				return err
			}
			return together([]*gate.Finding{cutOff(policies, networkingv1.PolicyTypeIngress),
				cutOff(policies, networkingv1.PolicyTypeEgress)})
		}, nil
	}}
}

// cutOff is the finding that the policies of a namespace allow nothing in a direction; nil if they do.
func cutOff(policies []networkingv1.NetworkPolicy, direction networkingv1.PolicyType) *gate.Finding {
	var found *gate.Finding
	for _, p := range policies {
		rules := len(p.Spec.Ingress)
		if direction == networkingv1.PolicyTypeEgress {
			rules = len(p.Spec.Egress)
		}
		switch {
		case !slices.Contains(p.Spec.PolicyTypes, direction):
		case rules > 0:
			return nil
		case found == nil:
			found = problem(TrafficDenied, client.Titled("networkpolicy", p.Namespace, p.Name),
				"denies all %s, and no policy of the namespace allows any",
				strings.ToLower(string(direction)))
		}
	}
	return found
}

// addressPool checks that MetalLB gives no Service an address that somebody has already: it answers ARP for
// the addresses of all pools in its namespace, whoever has them. Its webhook refuses overlapping pools alone.
func addressPool() definition {
	return definition{gate.Type{
		Name:    "address_pool",
		Summary: "no IPAddressPool of MetalLB contains an address that is in use",
		Attributes: map[string]gate.Attribute{
			"namespace": required(named("MetalLB's namespace")),
			"reserved": {Type: cty.Map(cty.String), Required: true,
				Help: `the addresses that no pool may contain, by holder: { "the API" = "192.168.1.210" }`},
		},
	}, func(v gate.Values) (Check, error) {
		var texts map[string]string
		if err := v.Decode("reserved", &texts); err != nil {
			return nil, fmt.Errorf("reserved: %w", err)
		}
		reserved := map[string]netip.Addr{}
		for holder, text := range texts {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("reserved: %s: %q is not an IP address", holder, text)
			}
			reserved[holder] = address
		}
		in := client.Selection{Namespace: v.String("namespace"), Resource: schema.GroupVersionResource{
			Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"}}
		return func(ctx context.Context, a *client.API) error {
			pools, err := a.List(ctx, in, "IPAddressPool")
			if err != nil {
				return err
			}
			check := func(pool client.Object) *gate.Finding { return checkPool(&pool, reserved) }
			if err := together(xslices.Map(pools, check)); err != nil {
				return gate.Permanent(err) // nothing but its owner changes a pool
			}
			return nil
		}, nil
	}}
}

// checkPool is the finding that a pool contains reserved addresses; nil if it contains none.
func checkPool(pool *client.Object, reserved map[string]netip.Addr) *gate.Finding {
	var taken []string
	entries, _, err := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
	for _, entry := range entries {
		for _, holder := range slices.Sorted(maps.Keys(reserved)) {
			inside, e := contains(entry, reserved[holder])
			if err = cmp.Or(err, e); inside {
				taken = append(taken, reserved[holder].String()+" of "+holder)
			}
		}
	}
	switch {
	case err != nil:
		return problem(AddressTaken, client.Title(pool), "its addresses cannot be read: %v", err)
	case len(taken) > 0:
		return problem(AddressTaken, client.Title(pool), "contains %s", client.Several(taken))
	}
	return nil
}

// contains reports whether an entry of a pool, 192.0.2.0/24 or 192.0.2.1-192.0.2.9, contains an address.
func contains(entry string, address netip.Addr) (bool, error) {
	if prefix, err := netip.ParsePrefix(strings.TrimSpace(entry)); err == nil {
		return prefix.Contains(address), nil
	}
	from, to, _ := strings.Cut(entry, "-")
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, e := netip.ParseAddr(strings.TrimSpace(to))
	return first.Compare(address) <= 0 && address.Compare(last) <= 0, cmp.Or(err, e)
}
