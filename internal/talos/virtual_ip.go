package talos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func virtualIPType() gate.Type {
	return gate.Type{
		Name:    "virtual_ip",
		Summary: "exactly one control plane has the virtual address, the one that had it a moment ago",
		Attributes: map[string]gate.Attribute{
			"address": {Type: cty.String, Required: true,
				Valid: gate.ValidForm(netip.ParseAddr, "an address such as 192.168.1.210"),
				Help:  "The virtual address, without a prefix length."},
			"endpoints": endpointsAttribute(),
		},
		Talos: true,
		Check: func(values gate.Values) error {
			var endpoints []string
			if err := values.Decode("endpoints", &endpoints); err != nil || !values.Has("address") {
				return nil //nolint:nilerr // not all is known yet: New checks it
			}
			address, _ := netip.ParseAddr(values.String("address")) // validAddress has accepted it
			return ownAddresses(address, endpoints)
		},
		New: func(name string, target gate.Target, values gate.Values) (gate.Gate, error) {
			g := &virtualIPGate{}
			m, err := newMachines(target.Talosconfig, values)
			if err == nil {
				g.address, err = netip.ParseAddr(values.String("address"))
			}
			switch {
			case err != nil:
			case len(m.endpoints) == 0:
				err = errors.New("the talosconfig has no endpoints: name every control plane in endpoints")
			default:
				err = ownAddresses(g.address, m.endpoints)
			}
			if err != nil {
				return gate.Gate{}, fmt.Errorf("gate %s: %w", name, err)
			}
			check := func(ctx context.Context) error {
				nodes, err := m.queryNodes(ctx, "addresses", readAddresses)
				if err != nil {
					return err
				}
				return g.checkHolder(nodes)
			}
			return gate.Gate{Name: name, Check: check, Changed: m.addressChanges,
				Diagnose: m.diagnosis(addressCause(g.address))}, nil
		},
	}
}

// ownAddresses rejects the virtual address as an endpoint: its holder would answer twice.
func ownAddresses(virtual netip.Addr, endpoints []string) error {
	for _, e := range endpoints {
		if a, err := netip.ParseAddr(hostOf(e)); err == nil && a.Unmap() == virtual.Unmap() {
			return fmt.Errorf("%s is the virtual address itself: name the machines' own in endpoints", e)
		}
	}
	return nil
}

type virtualIPGate struct {
	address netip.Addr

	mu     sync.Mutex
	holder string // the last machine that had the address alone; empty before
}

// readAddresses reads the addresses in force, not those in the configuration.
func readAddresses(ctx context.Context, c *client.Client, n *nodeView) error {
	list, err := safe.StateListAll[*network.AddressStatus](ctx, c.COSI)
	for a := range list.All() {
		n.addresses = append(n.addresses, *a.TypedSpec())
	}
	if err == nil && len(n.addresses) == 0 {
		err = errors.New("lists no address at all, although it answers at one")
	}
	return err
}

// linkWith returns the link that has the address; empty if none has.
func (n nodeView) linkWith(address netip.Addr) string {
	for _, a := range n.addresses {
		if a.Address.Addr().Unmap() == address.Unmap() {
			return a.LinkName
		}
	}
	return ""
}

// checkHolder returns nil if all machines answered, exactly one has the address, and it had the address
// before. A move closes the gate once: a wait with stable counts from the beginning.
func (g *virtualIPGate) checkHolder(nodes []nodeView) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var holders, with, without []string
	for _, n := range nodes {
		if link := n.linkWith(g.address); link != "" {
			holders, with = append(holders, n.endpoint), append(with, n.endpoint+" ("+link+")")
		} else if n.problem == nil {
			without = append(without, n.endpoint)
		}
	}
	fault, problems := "", problemsOf(nodes)
	switch {
	case len(holders) > 1:
		fault = fmt.Sprintf("%d control planes have it: %s", len(holders), strings.Join(with, ", "))
	case len(holders) == 1:
		from := cmp.Or(g.holder, holders[0])
		g.holder = holders[0]
		switch {
		case from != g.holder:
			fault = "moved from " + from + " to " + g.holder
		case len(problems) == 0:
			return nil
		default:
			fault = g.holder + " has it, but not every control plane answers"
		}
	case len(without) == 0:
		fault = "no control plane answers"
	default:
		fault = "missing on " + strings.Join(without, ", ")
	}
	return notReady(fmt.Sprintf("virtual address %s: %s", g.address, fault), problems)
}

// addressChanges is a gate's Changed: it signals when a machine's addresses may have changed. A watch that
// ends because its machine restarts is started again, and its start counts as a change.
func (m *machines) addressChanges(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default: // a signal is pending
		}
	}
	for _, endpoint := range m.endpoints {
		go func() {
			pauses := restartPauses()
			for ctx.Err() == nil {
				if m.watchAddresses(ctx, endpoint, signal) {
					pauses = restartPauses()
				}
				gate.Sleep(ctx, pauses.Step())
			}
		}()
	}
	return changed
}

// restartPauses lie between the attempts to begin a watch.
func restartPauses() wait.Backoff {
	return wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 10, Cap: 2 * time.Second}
}

// watchAddresses returns when the watch has ended, and whether it had begun.
func (m *machines) watchAddresses(ctx context.Context, endpoint string, signal func()) (begun bool) {
	m.call(ctx, endpoint, "addresses", func(c *client.Client) error {
		stream, err := v1alpha1.NewStateClient(c.Conn()).Watch(ctx, &v1alpha1.WatchRequest{
			Namespace: network.NamespaceName, Type: network.AddressStatusType, ApiVersion: 1,
			Options: &v1alpha1.WatchOptions{},
		})
		for err == nil {
			if _, err = stream.Recv(); err == nil { // the first message confirms the start
				begun = true
				signal()
			}
		}
		return err
	})
	return begun
}
