package talos

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// checkQuorum returns nil if etcd has exactly the wanted voters, each of them answered itself, and all
// agree. Otherwise the error lists the missing parts.
func checkQuorum(voters int, views []etcdView) error {
	names := memberNames(views)
	var problems []*problem
	for _, v := range views {
		if v.problem != nil {
			problems = append(problems, v.problem)
		}
	}
	details := slices.Concat(reasons(problems), memberDisagreement(views, names),
		leaderDisagreement(views, names), memberErrors(views, names))
	head, complete := progress(voters, views, names)
	if complete && len(details) == 0 {
		details = uncheckedVoters(views, names)
	}
	if complete && len(details) == 0 {
		return nil
	}
	err := notReady(head, details, problems)
	running := func(v etcdView) bool { return v.problem == nil || v.problem.kind != etcdDown }
	if !slices.ContainsFunc(views, running) {
		return &gate.Finding{Kind: gate.EtcdDown, Err: err}
	}
	return err
}

// progress counts voters and learners in the first member list that there is.
func progress(voters int, views []etcdView, names map[uint64]string) (string, bool) {
	first := slices.IndexFunc(views, func(v etcdView) bool { return v.members != nil })
	if first < 0 {
		return "etcd: no voter answers", false
	}
	members := views[first].members
	var learners []string
	for _, m := range members {
		if m.GetIsLearner() {
			learners = append(learners, names[m.GetId()])
		}
	}
	has := len(members) - len(learners)
	head := fmt.Sprintf("etcd: %d of %d voters", has, voters)
	if has > voters {
		head = fmt.Sprintf("etcd: %d voters where %d are wanted", has, voters)
	}
	switch list := strings.Join(learners, ", "); len(learners) {
	case 0:
	case 1:
		head += fmt.Sprintf(", 1 learner (%s)", list)
	default:
		head += fmt.Sprintf(", %d learners (%s)", len(learners), list)
	}
	return head, has == voters && len(learners) == 0
}

// disagreement compares a value of the views, which read returns with its key; views
// without a key are left out.
func disagreement(label string, views []etcdView, read func(etcdView) (key, text string)) []string {
	seen := map[string]bool{"": true}
	var lines []string
	for _, v := range views {
		if key, text := read(v); !seen[key] {
			seen[key] = true
			lines = append(lines, v.endpoint+" "+text)
		}
	}
	if len(lines) < 2 {
		return nil
	}
	return []string{label + " differ: " + strings.Join(lines, ", but ")}
}

func memberDisagreement(views []etcdView, names map[uint64]string) []string {
	return disagreement("members", views, func(v etcdView) (key, text string) {
		var ids, listed []string
		for _, m := range v.members {
			ids, listed = append(ids, fmt.Sprint(m.GetId())), append(listed, names[m.GetId()])
		}
		slices.Sort(ids)
		slices.Sort(listed)
		return strings.Join(ids, " "), "lists " + strings.Join(listed, ", ")
	})
}

// leaderDisagreement compares the leaders, learners' views included. A problem
// explains a missing leader better.
func leaderDisagreement(views []etcdView, names map[uint64]string) []string {
	var details []string
	for _, v := range views {
		if v.status != nil && v.status.GetLeader() == 0 && v.problem == nil {
			details = append(details, v.endpoint+": no leader")
		}
	}
	return append(details, disagreement("leaders", views, func(v etcdView) (key, text string) {
		if leader := v.status.GetLeader(); leader != 0 {
			return fmt.Sprint(leader), "follows " + names[leader]
		}
		return "", ""
	})...)
}

// memberErrors lists each alarm once, and the other errors that members report.
func memberErrors(views []etcdView, names map[uint64]string) []string {
	var details []string
	for _, v := range views {
		for _, a := range v.alarms {
			details = append(details, fmt.Sprintf("alarm %s on %s", a.GetAlarm(), names[a.GetMemberId()]))
		}
		for _, e := range v.status.GetErrors() {
			e = strings.TrimSpace(e)
			if e != "etcdserver: no leader" && !strings.Contains(e, "alarm:") { // both are listed already
				details = append(details, v.endpoint+": "+e)
			}
		}
	}
	slices.Sort(details)
	return slices.Compact(details)
}

// uncheckedVoters names the voters that no endpoint reaches: two endpoints may
// lead to the same machine.
func uncheckedVoters(views []etcdView, names map[uint64]string) []string {
	checked := map[uint64]bool{}
	for _, v := range views {
		checked[v.status.GetMemberId()] = true
	}
	var missing []string
	for id, name := range names {
		if !checked[id] {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return []string{"no endpoint leads to " + strings.Join(missing, ", ")}
}

// memberNames names every listed member: by hostname, or by address until it has started.
func memberNames(views []etcdView) map[uint64]string {
	names := map[uint64]string{}
	for _, v := range views {
		for _, m := range v.members {
			names[m.GetId()] = m.GetHostname()
			if m.GetHostname() == "" {
				names[m.GetId()] = peerHost(m) + ", not started"
			}
		}
	}
	for _, v := range views {
		for _, id := range []uint64{v.status.GetMemberId(), v.status.GetLeader()} {
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
