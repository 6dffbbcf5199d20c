package talos

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func virtualIPType() gate.Type {
	return gate.Type{
		Name:    "virtual_ip",
		Summary: "exactly one control plane carries the virtual address, and it is the one that did a moment ago",
		Attributes: map[string]gate.Attribute{
			"address": {Type: cty.String, Required: true, Valid: validAddress,
				Help: "The virtual address, without a prefix length."},
			"endpoints": endpointsAttribute(),
		},
		Talos: true,
		Check: func(values gate.Values) error {
			var endpoints []string
			if err := values.Decode("endpoints", &endpoints); err != nil || !values.Has("address") {
				return nil //nolint:nilerr // not all is known yet: New will judge
			}
			return ownAddresses(values.String("address"), endpoints)
		},
		New: func(name string, target gate.Target, values gate.Values) (gate.Gate, error) {
			g, err := newVirtualIPGate(target.Talosconfig, values)
			if err != nil {
				return gate.Gate{}, fmt.Errorf("gate %s: %w", name, err)
			}
			return gate.Gate{Name: name, Check: g.check, Changed: g.addressChanges, Diagnose: g.diagnose}, nil
		},
	}
}

func validAddress(x cty.Value) error {
	if _, err := netip.ParseAddr(x.AsString()); err != nil {
		return fmt.Errorf("%q is no address such as 192.168.1.210", x.AsString())
	}
	return nil
}

// ownAddresses refuses the virtual address as an endpoint: whoever holds it
// would answer twice, and nobody while it is missing.
func ownAddresses(virtual string, endpoints []string) error {
	for _, e := range endpoints {
		if sameAddress(hostOf(e), virtual) {
			return fmt.Errorf("%s is the virtual address itself: endpoints must be the control planes' own", e)
		}
	}
	return nil
}

func sameAddress(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err == nil && err2 == nil && x.Unmap() == y.Unmap()
}

type virtualIPGate struct {
	*machines
	address netip.Addr

	mu     sync.Mutex
	holder string // who had the address when last exactly one did; empty before
}

func newVirtualIPGate(talosconfig []byte, values gate.Values) (*virtualIPGate, error) {
	m, err := newMachines(talosconfig, values)
	if err != nil {
		return nil, err
	}
	g := &virtualIPGate{machines: m}
	if g.address, err = netip.ParseAddr(values.String("address")); err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	if len(g.endpoints) == 0 {
		return nil, fmt.Errorf("the talosconfig has no endpoints: name every control plane in endpoints")
	}
	return g, ownAddresses(values.String("address"), g.endpoints)
}

// claim is what one control plane says of the virtual address.
type claim struct {
	endpoint string
	problem  *problem
	link     string // where it has the address; empty if it has not
}

func (g *virtualIPGate) check(ctx context.Context) error {
	claims, err := askAll(ctx, g.machines, g.askAddress)
	if err != nil {
		return err
	}
	return g.judge(claims)
}

func (g *virtualIPGate) diagnose(ctx context.Context) gate.Diagnosis {
	return g.machines.diagnose(ctx, addressCause(g.address))
}

func (g *virtualIPGate) askAddress(ctx context.Context, endpoint string) claim {
	said := claim{endpoint: endpoint}
	c, problem := g.connect(ctx, endpoint)
	if problem != nil {
		said.problem = problem
		return said
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	addresses, err := addressesOf(ctx, c)
	if err != nil {
		said.problem = g.explain(endpoint, err, "about addresses")
		return said
	}
	for _, a := range addresses {
		if a.Address.Addr().Unmap() == g.address.Unmap() {
			said.link = a.LinkName
		}
	}
	return said
}

// addressesOf lists the addresses that the machine has in force, not those that
// its configuration wants.
func addressesOf(ctx context.Context, c *client.Client) ([]network.AddressStatusSpec, error) {
	list, err := safe.StateListAll[*network.AddressStatus](ctx, c.COSI)
	if err != nil {
		return nil, err
	}
	var all []network.AddressStatusSpec
	for a := range list.All() {
		all = append(all, *a.TypedSpec())
	}
	return all, nil
}

// judge returns nil if all machines answered, exactly one has the address and
// it is the one that had it before. A move closes the gate once: whoever waits
// with stable begins to count again.
func (g *virtualIPGate) judge(claims []claim) error {
	var holders, with, without []string
	var problems []*problem
	for _, c := range claims {
		switch {
		case c.problem != nil:
			problems = append(problems, c.problem)
		case c.link != "":
			holders, with = append(holders, c.endpoint), append(with, c.endpoint+" ("+c.link+")")
		default:
			without = append(without, c.endpoint)
		}
	}
	head, faults := fmt.Sprintf("virtual address %s: ", g.address), unanswered(problems)
	switch {
	case len(holders) > 1:
		return closed(fmt.Sprintf("%s%d control planes have it: %s", head, len(holders), strings.Join(with, ", ")), faults, problems)
	case len(holders) == 1:
		if from := g.move(holders[0]); from != "" {
			return closed(head+"moved from "+from+" to "+holders[0], faults, problems)
		}
		if len(faults) == 0 {
			return nil
		}
		return closed(head+holders[0]+" has it, but not every control plane answers", faults, problems)
	case len(without) == 0:
		return closed(head+"no control plane answers", faults, problems)
	default:
		return closed(head+"missing on "+strings.Join(without, ", "), faults, problems)
	}
}

// move notes who holds the address and returns who held it before, if that was
// somebody else.
func (g *virtualIPGate) move(to string) (from string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holder != to {
		from = g.holder
	}
	g.holder = to
	return from
}
