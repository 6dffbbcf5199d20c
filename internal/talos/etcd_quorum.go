package talos

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// checkQuorum returns nil if etcd has exactly the wanted voters, each of them
// answered itself, and all agree. Otherwise the error lists what is missing.
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

// memberDisagreement compares the member lists.
func memberDisagreement(views []etcdView, names map[uint64]string) []string {
	seen := map[string]bool{}
	var lists []string
	for _, v := range views {
		if v.members == nil {
			continue
		}
		var ids []uint64
		for _, m := range v.members {
			ids = append(ids, m.GetId())
		}
		slices.Sort(ids)
		if key := fmt.Sprint(ids); !seen[key] {
			seen[key] = true
			var listed []string
			for _, id := range ids {
				listed = append(listed, names[id])
			}
			slices.Sort(listed)
			lists = append(lists, fmt.Sprintf("%s lists %s", v.endpoint, strings.Join(listed, ", ")))
		}
	}
	if len(lists) < 2 {
		return nil
	}
	return []string{"members differ: " + strings.Join(lists, ", but ")}
}

// leaderDisagreement compares the leaders, learners' views included.
func leaderDisagreement(views []etcdView, names map[uint64]string) []string {
	var details, followers []string
	leaders := map[uint64]bool{}
	for _, v := range views {
		leader := v.status.GetLeader()
		switch {
		case v.status == nil:
		case leader == 0 && v.problem == nil: // with a problem, its reason is listed
			details = append(details, v.endpoint+": no leader")
		case leader != 0 && !leaders[leader]:
			leaders[leader] = true
			followers = append(followers, fmt.Sprintf("%s follows %s", v.endpoint, names[leader]))
		}
	}
	if len(followers) > 1 {
		details = append(details, "leaders differ: "+strings.Join(followers, ", but "))
	}
	return details
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
