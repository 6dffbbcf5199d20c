package talos

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/gen/xslices"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// diagnosis is a gate's Diagnose: it queries every control plane and lets causeOf find the likely cause.
func (m *machines) diagnosis(causeOf rule) func(context.Context, error) gate.Diagnosis {
	return func(ctx context.Context, _ error) gate.Diagnosis {
		nodes, _ := m.queryNodes(ctx, "services", m.readAll) //nolint:errcheck // what came in time counts
		d := causeOf(nodes)
		d.Files = map[string][]byte{}
		for _, n := range nodes {
			for file, report := range map[string][]byte{"services.txt": n.servicesReport(),
				"etcd.txt": n.etcdReport(), "addresses.txt": n.addressesReport()} {
				if n.problem != nil {
					report = fmt.Appendf(nil, "no answer: %s\n", n.problem.reason)
				}
				var text bytes.Buffer
				columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
				columns.Write(report) //nolint:errcheck // a buffer takes everything
				columns.Flush()       //nolint:errcheck // likewise
				d.Files["talos/"+strings.ReplaceAll(n.endpoint, "/", "_")+"/"+file] = text.Bytes()
			}
		}
		return d
	}
}

// readAll reads etcd last: without etcd that call may hang until the attempt ends.
func (m *machines) readAll(ctx context.Context, c *client.Client, n *nodeView) error {
	services, err := first(c.ServiceList(ctx))
	if err != nil {
		return err
	}
	n.services = services.GetServices()
	_ = readAddresses(ctx, c, n) // the file lacks them then
	_ = readLinks(ctx, c, n)     // likewise
	_ = readRelease(ctx, c, n)   // likewise
	if err := readEtcd(ctx, c, n); err != nil {
		n.etcdProblem = m.explain(n.endpoint, err, "etcd")
	}
	return nil
}

// readLinks reads the network links that a configuration can name, with their aliases.
func readLinks(ctx context.Context, c *client.Client, n *nodeView) error {
	list, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
	for link := range list.All() {
		if kind := link.TypedSpec().Kind; !link.TypedSpec().Physical() && kind != "bond" && kind != "vlan" {
			continue // lo, and the links of containers
		}
		name := link.Metadata().ID()
		if aliases := slices.Collect(network.AllLinkAliases(link)); len(aliases) > 0 {
			name += " (" + strings.Join(aliases, ", ") + ")"
		}
		n.links = append(n.links, name)
	}
	return err
}

// service returns the machine's service of that name; nil if it has none.
func (n nodeView) service(id string) *machineapi.ServiceInfo {
	i := slices.IndexFunc(n.services, func(s *machineapi.ServiceInfo) bool { return s.GetId() == id })
	if i < 0 {
		return nil
	}
	return n.services[i]
}

// host is the argument with which talosctl reaches the machine.
func (n nodeView) host() string { return hostOf(n.endpoint) }

// servicesReport lists every service, then the last eight events of the unhealthy ones.
func (n nodeView) servicesReport() []byte {
	text := []byte("SERVICE\tSTATE\tHEALTH\tLAST EVENT\n")
	var details []byte
	for _, s := range n.services {
		text = fmt.Appendf(text, "%s\t%s\t%s\t%s\n", s.GetId(), s.GetState(), health(s), lastEvent(s))
		if health(s) == "OK" {
			continue
		}
		details = fmt.Appendf(details, "\nEVENTS OF %s\n", s.GetId())
		events := s.GetEvents().GetEvents()
		for _, e := range events[max(0, len(events)-8):] {
			at := e.GetTs().AsTime().Format(time.RFC3339)
			details = fmt.Appendf(details, "%s\t%s\t%s\n", at, e.GetState(), e.GetMsg())
		}
	}
	return append(text, details...)
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
func (n nodeView) etcdReport() (text []byte) {
	if n.etcdProblem != nil {
		text = fmt.Appendf(text, "no answer: %s\n", n.etcdProblem.reason)
	}
	if s := n.status; s != nil {
		text = fmt.Appendf(text, "member\t%016x\nleader\t%016x\nlearner\t%t\n",
			s.GetMemberId(), s.GetLeader(), s.GetIsLearner())
		text = fmt.Appendf(text, "raft\tterm %d, index %d, applied %d\n", s.GetRaftTerm(), s.GetRaftIndex(),
			s.GetRaftAppliedIndex())
		text = fmt.Appendf(text, "database\t%d bytes, %d in use\n", s.GetDbSize(), s.GetDbSizeInUse())
		text = fmt.Appendf(text, "errors\t%s\n", strings.Join(s.GetErrors(), "; "))
	}
	if len(n.members) > 0 {
		text = append(text, "\nMEMBER\tNAME\tLEARNER\tPEERS\n"...)
	}
	for _, m := range n.members {
		text = fmt.Appendf(text, "%016x\t%s\t%t\t%s\n", m.GetId(), m.GetHostname(), m.GetIsLearner(),
			strings.Join(m.GetPeerUrls(), ","))
	}
	for _, a := range n.alarms {
		text = fmt.Appendf(text, "\nalarm %s on %016x\n", a.GetAlarm(), a.GetMemberId())
	}
	return text
}

func (n nodeView) addressesReport() []byte {
	text := []byte("LINK\tADDRESS\n")
	for _, a := range n.addresses {
		text = fmt.Appendf(text, "%s\t%s\n", a.LinkName, a.Address)
	}
	return fmt.Appendf(text, "\nlinks: %s\n", strings.Join(n.links, ", "))
}

// rule returns the likely cause that it knows, and a command that shows more; no Cause if it does not fit.
type rule = func([]nodeView) gate.Diagnosis

// etcdRules find the likely cause of an etcd that is not healthy. A rule stands before those whose
// findings would follow from its own.
var etcdRules = []rule{
	unreachable, eachNode(alarm), notBootstrapped, splitCluster, eachNode(noQuorum),
	stuckLearner, ghostMember, eachNode(preparing), eachNode(unhealthy),
}

// etcdCause returns the cause of the first rule that fits.
func etcdCause(nodes []nodeView) gate.Diagnosis {
	return firstCause(etcdRules, func(r rule) gate.Diagnosis { return r(nodes) })
}

// eachNode is a rule that fits if it fits one of the nodes.
func eachNode(of func(nodeView) gate.Diagnosis) rule {
	return func(nodes []nodeView) gate.Diagnosis { return firstCause(nodes, of) }
}

func firstCause[T any](all []T, causeOf func(T) gate.Diagnosis) gate.Diagnosis {
	for _, one := range all {
		if h := causeOf(one); h.Cause != "" {
			return h
		}
	}
	return gate.Diagnosis{}
}

// because is a cause that talosctl shows on these hosts.
func because(hosts, command, cause string) gate.Diagnosis {
	hosts = strings.ReplaceAll(hosts, " ", "")
	return gate.Diagnosis{Cause: cause, Look: "talosctl -n " + hosts + " " + command}
}

// unreachable finds a machine that does not answer, or not as a machine of this cluster.
func unreachable(nodes []nodeView) gate.Diagnosis {
	var silent []nodeView
	for _, n := range nodes {
		if n.problem == nil || n.problem.permanent {
			continue
		}
		silent = append(silent, n)
		if n.problem.kind == unknownCA {
			return because(n.host(), "get machinestatus --insecure",
				n.host()+" waits for its configuration, or has an earlier cluster's; then reset it")
		}
	}
	if len(silent) == 0 {
		return gate.Diagnosis{}
	}
	return because(silent[0].host(), "version",
		hosts(silent)+" is off, boots or installs itself, or its address differs from the configuration")
}

func alarm(n nodeView) gate.Diagnosis {
	if len(n.alarms) == 0 {
		return gate.Diagnosis{}
	}
	cause := "the data of an etcd member is damaged: reset that machine, and it joins again"
	if n.alarms[0].GetAlarm() == machineapi.EtcdMemberAlarm_NOSPACE {
		cause = "etcd's database is full: defragment it and disarm the alarm; until then it rejects writes"
	}
	return because(n.host(), "etcd alarm list", cause)
}

// notBootstrapped fits if etcd waits on all machines for a cluster to join.
func notBootstrapped(nodes []nodeView) gate.Diagnosis {
	for _, n := range nodes {
		if n.service("etcd").GetState() != "Preparing" {
			return gate.Diagnosis{}
		}
	}
	h := because(nodes[0].host(), "service etcd",
		"etcd was never bootstrapped, or its data is gone: every control plane waits for a cluster to join; "+
			"castle restore brings the data back from a backup")
	h.Kind = gate.NeverBootstrapped
	return h
}

func splitCluster(nodes []nodeView) gate.Diagnosis {
	if len(memberDisagreement(nodes, memberNames(nodes))) == 0 {
		return gate.Diagnosis{}
	}
	return because(hosts(nodes), "etcd members", "two etcd clusters have formed: more than one "+
		"control plane was bootstrapped, or the disk of an earlier cluster was used again")
}

func noQuorum(n nodeView) gate.Diagnosis {
	if n.status == nil || n.status.GetLeader() != 0 {
		return gate.Diagnosis{}
	}
	return because(n.host(), "logs etcd",
		"etcd has no quorum: more than half of its members must run and reach each other on port 2380")
}

// stuckLearner finds a member that is not promoted; etcd admits no other meanwhile.
func stuckLearner(nodes []nodeView) gate.Diagnosis {
	names := memberNames(nodes)
	for _, n := range nodes {
		i := slices.IndexFunc(n.members, (*machineapi.EtcdMember).GetIsLearner)
		if i < 0 {
			continue
		}
		m, host := n.members[i], peerHost(n.members[i])
		if m.GetHostname() == "" {
			return because(host, "service etcd", "etcd has admitted "+host+", which has not started its "+
				"member: its disk holds an earlier cluster, or it cannot reach the others on port 2380")
		}
		return because(host, "logs etcd", names[m.GetId()]+" stays a learner: it does not catch up with "+
			"the leader (slow disk, or port 2380 blocked), and no other machine can join meanwhile")
	}
	return gate.Diagnosis{}
}

// ghostMember finds a member that belongs to none of the control planes.
func ghostMember(nodes []nodeView) gate.Diagnosis {
	known := map[netip.Addr]bool{}
	for _, n := range nodes {
		a, err := netip.ParseAddr(n.host())
		if err != nil {
			return gate.Diagnosis{} // a host name does not show which member it is
		}
		known[a] = true
	}
	for _, n := range nodes {
		for _, m := range n.members {
			if a, err := netip.ParseAddr(peerHost(m)); err == nil && !known[a] {
				return because(n.host(), "etcd members", fmt.Sprintf("etcd still counts a member at %s, "+
					"which is none of the control planes: an earlier machine that was not removed", a))
			}
		}
	}
	return gate.Diagnosis{}
}

func preparing(n nodeView) gate.Diagnosis {
	if n.service("etcd").GetState() != "Preparing" {
		return gate.Diagnosis{}
	}
	return because(n.host(), "service etcd", "etcd on "+n.host()+" is stuck in Preparing: an old disk, "+
		"or a member that used the same address before, blocks it; reset the machine")
}

// unhealthy finds an etcd that fails for a reason that no other rule knows.
func unhealthy(n nodeView) gate.Diagnosis {
	s := n.service("etcd")
	if s == nil || s.GetState() == "Running" && health(s) != "Fail" {
		return gate.Diagnosis{}
	}
	return because(n.host(), "logs etcd",
		fmt.Sprintf("etcd on %s is %s: %s", n.host(), s.GetState(), lastEvent(s)))
}

// addressCause finds why a virtual address has no holder, several, or a new one again and again.
func addressCause(address netip.Addr) rule {
	return func(nodes []nodeView) gate.Diagnosis {
		if h := etcdCause(nodes); h.Cause != "" {
			if unreachable(nodes).Cause != h.Cause {
				h.Cause = "the control planes elect the holder through etcd, and " + h.Cause
			}
			return h
		}
		var holders, links []string
		for _, n := range nodes {
			if n.problem != nil {
				return gate.Diagnosis{} // its reason is the whole cause
			}
			links = append(links, n.links...)
			if n.linkWith(address) != "" {
				holders = append(holders, n.host())
			}
		}
		slices.Sort(links)
		switch len(holders) {
		case 0:
			return because(hosts(nodes), "get links",
				"etcd is healthy, so the configuration names no virtual address, or a link that "+
					"the machines do not have (theirs: "+strings.Join(slices.Compact(links), ", ")+")")
		case 1:
			return because(holders[0], "logs controller-runtime",
				"its holder restarts, or loses its etcd session again and again (slow disks, lost packets)")
		}
		return because(hosts(nodes), "etcd members", strings.Join(holders, " and ")+
			" do not elect together: each was bootstrapped, or one lost its connection to etcd")
	}
}

func hosts(nodes []nodeView) string {
	return strings.Join(xslices.Map(nodes, func(n nodeView) string { return n.host() }), ", ")
}
