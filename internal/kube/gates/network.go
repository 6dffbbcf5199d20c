package gates

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

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

// addressPool checks that MetalLB assigns no Service an address that somebody has already: it answers ARP for
// the addresses of its pools without a look at other owners. MetalLB reads the pools of its own namespace,
// whoever has created them. Its webhook only refuses a pool that overlaps with another one.
func addressPool() definition {
	return definition{gate.Type{
		Name:    "address_pool",
		Summary: "no IPAddressPool of MetalLB contains an address that is in use",
		Attributes: map[string]gate.Attribute{
			"namespace": required(named("MetalLB's namespace")),
			"reserved": {Type: cty.Map(cty.String), Required: true, Valid: validReserved,
				Help: `the addresses that no pool may contain, by holder: { "the API" = "192.168.1.210" }`},
		},
	}, func(v gate.Values) (Check, error) {
		var reserved map[string]string
		if err := v.Decode("reserved", &reserved); err != nil {
			return nil, fmt.Errorf("reserved: %w", err)
		}
		return func(ctx context.Context, a *client.API) error {
			in := client.Selection{Namespace: v.String("namespace"), Resource: poolResource}
			pools, err := a.List(ctx, in, "IPAddressPool")
			if err != nil {
				return err
			}
			var closed []*gate.Finding
			for _, pool := range pools {
				closed = append(closed, checkPool(&pool, reserved))
			}
			if err := together(closed); err != nil {
				return gate.Permanent(err) // nothing but its owner changes a pool
			}
			return nil
		}, nil
	}}
}

var poolResource = schema.GroupVersionResource{
	Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools",
}

// checkPool is the finding that a pool contains a reserved address; nil if it contains none.
func checkPool(pool *client.Object, reserved map[string]string) *gate.Finding {
	ranges, _, err := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
	if err != nil {
		return problem(AddressTaken, client.Title(pool), "spec.addresses is no list of addresses")
	}
	var taken []string
	for _, entry := range ranges {
		for _, holder := range slices.Sorted(maps.Keys(reserved)) {
			inside, err := contains(entry, canonical(reserved[holder]))
			if err != nil {
				return problem(AddressTaken, client.Title(pool),
					"%q is neither a CIDR nor a range of addresses", client.Brief(entry))
			}
			if inside {
				taken = append(taken, reserved[holder]+" of "+holder)
			}
		}
	}
	if len(taken) > 0 {
		return problem(AddressTaken, client.Title(pool), "contains %s", client.Several(taken))
	}
	return nil
}

// contains reports whether an entry of a pool contains an address. MetalLB takes 192.0.2.0/24 and
// 192.0.2.1-192.0.2.9.
func contains(entry, address string) (bool, error) {
	at, err := netip.ParseAddr(address)
	if prefix, e := netip.ParsePrefix(strings.TrimSpace(entry)); e == nil {
		return err == nil && prefix.Contains(at), err
	}
	from, to, _ := strings.Cut(entry, "-")
	first, errFirst := netip.ParseAddr(strings.TrimSpace(from))
	last, errLast := netip.ParseAddr(strings.TrimSpace(to))
	inside := first.Compare(at) <= 0 && at.Compare(last) <= 0
	return inside, errors.Join(err, errFirst, errLast)
}

func validReserved(x cty.Value) error {
	for holder, address := range x.AsValueMap() {
		if address.IsNull() {
			return fmt.Errorf("%s: an address is required, not null", holder)
		}
		if address.IsKnown() {
			if err := validIP(address); err != nil {
				return fmt.Errorf("%s: %w", holder, err)
			}
		}
	}
	return nil
}
