package talos

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func etcdType() gate.Type {
	return gate.Type{
		Name:    "talos_etcd",
		Summary: "etcd has exactly the wanted voters, no learner, one leader that all see, and no alarm",
		Attributes: map[string]gate.Attribute{
			"voters": {Type: cty.Number, Required: true, Valid: gate.ValidCount,
				Help: "How many voting members etcd must have: the number of control planes."},
			"endpoints": endpointsAttribute(),
		},
		Talos: true,
		New: func(name string, target gate.Target, values gate.Values) (gate.Gate, error) {
			m, err := newMachines(target.Talosconfig, values)
			voters := values.Int("voters")
			if err == nil && len(m.endpoints) < voters {
				err = fmt.Errorf("%d voters are wanted and %d endpoints known (%v): "+
					"name every control plane in endpoints", voters, len(m.endpoints), m.endpoints)
			}
			if err != nil {
				return gate.Gate{}, fmt.Errorf("gate %s: %w", name, err)
			}
			check := func(ctx context.Context) error { return m.checkQuorum(ctx, voters) }
			return gate.Gate{Name: name, Check: check, Diagnose: m.diagnosis(etcdCause)}, nil
		},
	}
}

func (m *machines) checkQuorum(ctx context.Context, voters int) error {
	nodes, err := m.queryNodes(ctx, "etcd", readEtcd)
	if err != nil {
		return err
	}
	return quorum(voters, nodes)
}

// readEtcd reads the state of etcd. A learner does not answer calls for members and alarms.
func readEtcd(ctx context.Context, c *client.Client, n *nodeView) error {
	status, err := first(c.EtcdStatus(ctx))
	if err != nil {
		return err
	}
	n.status = status.GetMemberStatus()
	if n.status.GetIsLearner() {
		return nil
	}
	// The local member's list differs where two clusters have formed side by side.
	list, err := first(c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true}))
	if err != nil {
		return err
	}
	n.members = list.GetMembers()
	alarms, err := first(c.EtcdAlarmList(ctx))
	n.alarms = alarms.GetMemberAlarms()
	return err
}

// quorum returns nil if etcd has exactly the wanted voters, each of them answered itself, and all agree.
func quorum(voters int, nodes []nodeView) error {
	names, problems := memberNames(nodes), problemsOf(nodes)
	details := slices.Concat(memberDisagreement(nodes, names), leaderDisagreement(nodes, names),
		memberErrors(nodes, names))
	head, complete := progress(voters, nodes, names)
	if complete && len(problems)+len(details) == 0 {
		if details = uncheckedVoters(nodes, names); len(details) == 0 {
			return nil
		}
	}
	err := notReady(head, problems, details...)
	running := func(n nodeView) bool { return n.problem == nil || n.problem.kind != etcdDown }
	if !slices.ContainsFunc(nodes, running) {
		return &gate.Finding{Kind: gate.EtcdDown, Err: err}
	}
	return err
}

// progress counts voters and learners in the first member list that there is.
func progress(voters int, nodes []nodeView, names map[uint64]string) (string, bool) {
	first := slices.IndexFunc(nodes, func(n nodeView) bool { return n.members != nil })
	if first < 0 {
		return "etcd: no voter answers", false
	}
	var learners []string
	for _, m := range nodes[first].members {
		if m.GetIsLearner() {
			learners = append(learners, names[m.GetId()])
		}
	}
	has := len(nodes[first].members) - len(learners)
	head := fmt.Sprintf("etcd: %d of %d voters", has, voters)
	if has > voters {
		head = fmt.Sprintf("etcd: %d voters where %d are wanted", has, voters)
	}
	if len(learners) > 0 { // etcd admits one at a time
		head += fmt.Sprintf(", %d learner (%s)", len(learners), strings.Join(learners, ", "))
	}
	return head, has == voters && len(learners) == 0
}

// disagreement compares a value of the nodes, which read returns with its key; one without is left out.
func disagreement(label string, nodes []nodeView, read func(nodeView) (key, text string)) []string {
	seen := map[string]bool{"": true}
	var lines []string
	for _, n := range nodes {
		if key, text := read(n); !seen[key] {
			seen[key] = true
			lines = append(lines, n.endpoint+" "+text)
		}
	}
	if len(lines) < 2 {
		return nil
	}
	return []string{label + " differ: " + strings.Join(lines, ", but ")}
}

func memberDisagreement(nodes []nodeView, names map[uint64]string) []string {
	return disagreement("members", nodes, func(n nodeView) (key, text string) {
		var ids, listed []string
		for _, m := range n.members {
			ids, listed = append(ids, fmt.Sprint(m.GetId())), append(listed, names[m.GetId()])
		}
		slices.Sort(ids)
		slices.Sort(listed)
		return strings.Join(ids, " "), "lists " + strings.Join(listed, ", ")
	})
}

// leaderDisagreement compares the leaders. A node's problem explains a missing leader better.
func leaderDisagreement(nodes []nodeView, names map[uint64]string) []string {
	var details []string
	for _, n := range nodes {
		if n.status != nil && n.status.GetLeader() == 0 && n.problem == nil {
			details = append(details, n.endpoint+": no leader")
		}
	}
	return append(details, disagreement("leaders", nodes, func(n nodeView) (key, text string) {
		if leader := n.status.GetLeader(); leader != 0 {
			return fmt.Sprint(leader), "follows " + names[leader]
		}
		return "", ""
	})...)
}

// memberErrors lists each alarm once, and the other errors that members report.
func memberErrors(nodes []nodeView, names map[uint64]string) []string {
	var details []string
	for _, n := range nodes {
		for _, a := range n.alarms {
			details = append(details, fmt.Sprintf("alarm %s on %s", a.GetAlarm(), names[a.GetMemberId()]))
		}
		for _, e := range n.status.GetErrors() {
			e = strings.TrimSpace(e)
			if e != "etcdserver: no leader" && !strings.Contains(e, "alarm:") { // both are listed already
				details = append(details, n.endpoint+": "+e)
			}
		}
	}
	slices.Sort(details)
	return slices.Compact(details)
}

// uncheckedVoters names the voters that no endpoint reaches: two endpoints may lead to the same machine.
func uncheckedVoters(nodes []nodeView, names map[uint64]string) []string {
	missing := maps.Clone(names)
	for _, n := range nodes {
		delete(missing, n.status.GetMemberId())
	}
	if len(missing) == 0 {
		return nil
	}
	return []string{"no endpoint leads to " + strings.Join(slices.Sorted(maps.Values(missing)), ", ")}
}

// memberNames names every listed member: by hostname, or by address until it has started.
func memberNames(nodes []nodeView) map[uint64]string {
	names := map[uint64]string{}
	for _, n := range nodes {
		for _, m := range n.members {
			names[m.GetId()] = m.GetHostname()
			if m.GetHostname() == "" {
				names[m.GetId()] = peerHost(m) + ", not started"
			}
		}
	}
	for _, n := range nodes {
		for _, id := range []uint64{n.status.GetMemberId(), n.status.GetLeader()} {
			if id != 0 && names[id] == "" {
				names[id] = fmt.Sprintf("member %016x", id)
			}
		}
	}
	return names
}

func peerHost(m *machineapi.EtcdMember) string {
	for _, peer := range m.GetPeerUrls() {
		if u, err := url.Parse(peer); err == nil && u.Hostname() != "" {
			return u.Hostname()
		}
	}
	return fmt.Sprintf("member %016x", m.GetId())
}
