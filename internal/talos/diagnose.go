package talos

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// nodeView is one control plane's report about itself. It holds only resources that a reader may see and no
// secrets: never machine configurations or operator specs.
type nodeView struct {
	endpoint  string
	problem   *problem // why there is no report
	services  []*machineapi.ServiceInfo
	addresses []network.AddressStatusSpec
	links     []string
	etcd      etcdView
}

// diagnose queries every control plane and lets causeOf find the likely cause.
func (m *machines) diagnose(ctx context.Context, causeOf func([]nodeView) hint) gate.Diagnosis {
	nodes, _ := queryAll(ctx, m, m.queryNode) //nolint:errcheck // what came in time is worth reporting
	d := gate.Diagnosis{Files: map[string][]byte{}}
	for _, n := range nodes {
		folder := "talos/" + strings.ReplaceAll(n.endpoint, "/", "_") + "/"
		for file, report := range map[string]func() []byte{
			"services.txt": n.servicesReport, "etcd.txt": n.etcdReport, "addresses.txt": n.addressesReport,
		} {
			if n.problem != nil {
				d.Files[folder+file] = []byte("no answer: " + n.problem.reason + "\n")
			} else {
				d.Files[folder+file] = report()
			}
		}
	}
	likely := causeOf(nodes)
	d.Kind, d.Cause, d.Look = likely.kind, likely.cause, likely.look
	return d
}

// queryNode reads etcd last: without etcd that call may hang until the attempt ends.
func (m *machines) queryNode(ctx context.Context, endpoint string) nodeView {
	n := nodeView{endpoint: endpoint, etcd: etcdView{endpoint: endpoint}}
	n.problem = m.call(ctx, endpoint, "services", func(c *client.Client) error {
		services, err := first(c.ServiceList(ctx))
		if err != nil {
			return err
		}
		n.services = services.GetServices()
		n.addresses, _ = addressesOf(ctx, c) //nolint:errcheck // the file lacks them then
		n.links, _ = linksOf(ctx, c)         //nolint:errcheck // likewise
		if err := n.etcd.read(ctx, c); err != nil {
			n.etcd.problem = m.explain(endpoint, err, "etcd")
		}
		return nil
	})
	return n
}

// linksOf lists the network links that a configuration can name, with their aliases.
func linksOf(ctx context.Context, c *client.Client) ([]string, error) {
	list, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
	if err != nil {
		return nil, err
	}
	var all []string
	for link := range list.All() {
		if kind := link.TypedSpec().Kind; !link.TypedSpec().Physical() && kind != "bond" && kind != "vlan" {
			continue // lo, and the links of containers
		}
		name := link.Metadata().ID()
		var aliases []string
		for alias := range network.AllLinkAliases(link) {
			aliases = append(aliases, alias)
		}
		if len(aliases) != 0 {
			name += " (" + strings.Join(aliases, ", ") + ")"
		}
		all = append(all, name)
	}
	return all, nil
}

// service returns the machine's service of that name; nil if it has none.
func (n nodeView) service(id string) *machineapi.ServiceInfo {
	for _, s := range n.services {
		if s.GetId() == id {
			return s
		}
	}
	return nil
}

// host is the argument with which talosctl reaches the machine.
func (n nodeView) host() string { return hostOf(n.endpoint) }

// recentEvents is how many events of a service a report lists.
const recentEvents = 8

// table writes rows of cells in columns.
func table(rows ...[]string) []byte {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t")) //nolint:errcheck // a buffer takes everything
	}
	w.Flush() //nolint:errcheck // likewise
	return text.Bytes()
}

// servicesReport lists every service, then the last events of the unhealthy ones.
func (n nodeView) servicesReport() []byte {
	rows := [][]string{{"SERVICE", "STATE", "HEALTH", "LAST EVENT"}}
	var details []byte
	for _, s := range n.services {
		rows = append(rows, []string{s.GetId(), s.GetState(), health(s), lastEvent(s)})
		if health(s) == "OK" {
			continue
		}
		events := s.GetEvents().GetEvents()
		last := [][]string{{"\nEVENTS OF " + s.GetId()}}
		for _, e := range events[max(0, len(events)-recentEvents):] {
			at := "-"
			if e.GetTs().IsValid() {
				at = e.GetTs().AsTime().UTC().Format(time.RFC3339)
			}
			last = append(last, []string{at, e.GetState(), e.GetMsg()})
		}
		details = append(details, table(last...)...)
	}
	return append(table(rows...), details...)
}

// health is the value that talosctl shows.
func health(s *machineapi.ServiceInfo) string {
	switch h := s.GetHealth(); {
	case h.GetUnknown():
		return "?"
	case h.GetHealthy():
		return "OK"
	default:
		return "Fail"
	}
}

func lastEvent(s *machineapi.ServiceInfo) string {
	events := s.GetEvents().GetEvents()
	if len(events) == 0 {
		return ""
	}
	return events[len(events)-1].GetMsg()
}

// etcdReport is the status of the machine's own member, and the members that it lists.
func (n nodeView) etcdReport() []byte {
	var rows [][]string
	if n.etcd.problem != nil {
		rows = append(rows, []string{"no answer: " + n.etcd.problem.reason})
	}
	if s := n.etcd.status; s != nil {
		rows = append(rows,
			[]string{"member", fmt.Sprintf("%016x", s.GetMemberId())},
			[]string{"leader", fmt.Sprintf("%016x", s.GetLeader())},
			[]string{"learner", fmt.Sprint(s.GetIsLearner())},
			[]string{"raft", fmt.Sprintf("term %d, index %d, applied %d",
				s.GetRaftTerm(), s.GetRaftIndex(), s.GetRaftAppliedIndex())},
			[]string{"database", fmt.Sprintf("%d bytes, %d in use", s.GetDbSize(), s.GetDbSizeInUse())},
			[]string{"errors", strings.Join(s.GetErrors(), "; ")},
		)
	}
	text := table(rows...)
	if len(n.etcd.members) != 0 {
		rows = [][]string{{"\nMEMBER", "NAME", "LEARNER", "PEERS"}}
		for _, m := range n.etcd.members {
			rows = append(rows, []string{
				fmt.Sprintf("%016x", m.GetId()), m.GetHostname(), fmt.Sprint(m.GetIsLearner()),
				strings.Join(m.GetPeerUrls(), ","),
			})
		}
		text = append(text, table(rows...)...)
	}
	for _, a := range n.etcd.alarms {
		text = fmt.Appendf(text, "\nalarm %s on %016x\n", a.GetAlarm(), a.GetMemberId())
	}
	return text
}

func (n nodeView) addressesReport() []byte {
	rows := [][]string{{"LINK", "ADDRESS"}}
	for _, a := range n.addresses {
		rows = append(rows, []string{a.LinkName, a.Address.String()})
	}
	return fmt.Appendf(table(rows...), "\nlinks: %s\n", strings.Join(n.links, ", "))
}
