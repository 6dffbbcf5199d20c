package talos

import (
	"context"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// witness is what one control plane says of itself: all that its API tells a
// reader and that holds no secret. Machine configurations and operators'
// specifications, which hold some, are never asked for.
type witness struct {
	endpoint  string
	problem   *problem // why it says nothing at all
	services  []*machineapi.ServiceInfo
	addresses []network.AddressStatusSpec
	links     []string
	etcd      view
}

// diagnose asks every control plane and lets judge name the likely cause.
func (m *machines) diagnose(ctx context.Context, judge func([]witness) hint) gate.Diagnosis {
	heard, _ := askAll(ctx, m, m.hear) //nolint:errcheck // whatever was heard in time is worth telling
	d := gate.Diagnosis{Files: map[string][]byte{}}
	for _, w := range heard {
		folder := "talos/" + strings.ReplaceAll(w.endpoint, "/", "_") + "/"
		d.Files[folder+"services.txt"] = w.servicesText()
		d.Files[folder+"etcd.txt"] = w.etcdText()
		d.Files[folder+"addresses.txt"] = w.addressesText()
	}
	likely := judge(heard)
	d.Kind, d.Cause, d.Look = likely.kind(), likely.cause, likely.look
	return d
}

// hear asks one machine. What concerns etcd comes last: without etcd that call
// may hang until the attempt is over.
func (m *machines) hear(ctx context.Context, endpoint string) witness {
	w := witness{endpoint: endpoint}
	c, problem := m.connect(ctx, endpoint)
	if problem != nil {
		w.problem = problem
		return w
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	services, err := c.ServiceList(ctx)
	if err != nil || len(services.GetMessages()) == 0 {
		w.problem = m.explain(endpoint, err, "about services")
		return w
	}
	w.services = services.GetMessages()[0].GetServices()
	// What cannot be told is missing in the file.
	w.addresses, _ = addressesOf(ctx, c) //nolint:errcheck // see above
	w.links, _ = linksOf(ctx, c)         //nolint:errcheck // see above
	w.etcd = m.etcdOf(ctx, c, endpoint)
	return w
}

// linksOf lists the names of the machine's network links that a configuration
// could mean, other names of the same link in brackets.
func linksOf(ctx context.Context, c *client.Client) ([]string, error) {
	list, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
	if err != nil {
		return nil, err
	}
	var all []string
	for link := range list.All() {
		name := link.Metadata().ID()
		if kind := link.TypedSpec().Kind; !link.TypedSpec().Physical() && kind != "bond" && kind != "vlan" {
			continue // lo, and what containers are connected with
		}
		var others []string
		for other := range network.AllLinkAliases(link) {
			others = append(others, other)
		}
		if len(others) != 0 {
			name += " (" + strings.Join(others, ", ") + ")"
		}
		all = append(all, name)
	}
	return all, nil
}

// service returns the machine's service of that name; nil if it has none.
func (w witness) service(id string) *machineapi.ServiceInfo {
	for _, s := range w.services {
		if s.GetId() == id {
			return s
		}
	}
	return nil
}

// host is how talosctl is told to ask this machine.
func (w witness) host() string { return hostOf(w.endpoint) }
