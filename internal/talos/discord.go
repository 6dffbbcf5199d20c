package talos

import (
	"fmt"
	"slices"
	"strings"
)

// disagreement compares the member lists.
func disagreement(views []view, names map[uint64]string) []string {
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
		key := fmt.Sprint(ids)
		if seen[key] {
			continue
		}
		seen[key] = true
		var said []string
		for _, id := range ids {
			said = append(said, names[id])
		}
		slices.Sort(said)
		lists = append(lists, fmt.Sprintf("%s lists %s", v.endpoint, strings.Join(said, ", ")))
	}
	if len(lists) < 2 {
		return nil
	}
	return []string{"members differ: " + strings.Join(lists, ", but ")}
}

// leadership compares the leaders, learners' views included.
func leadership(views []view, names map[uint64]string) []string {
	var faults, said []string
	leaders := map[uint64]bool{}
	for _, v := range views {
		switch {
		case v.status == nil:
		case v.status.GetLeader() == 0 && v.problem != nil: // unanswered says why
		case v.status.GetLeader() == 0:
			faults = append(faults, v.endpoint+": no leader")
		case !leaders[v.status.GetLeader()]:
			leaders[v.status.GetLeader()] = true
			said = append(said, fmt.Sprintf("%s follows %s", v.endpoint, names[v.status.GetLeader()]))
		}
	}
	if len(said) > 1 {
		faults = append(faults, "leaders differ: "+strings.Join(said, ", but "))
	}
	return faults
}

// complaints lists alarms once each, and what else a member reports of itself.
func complaints(views []view, names map[uint64]string) []string {
	var faults []string
	for _, v := range views {
		for _, a := range v.alarms {
			faults = append(faults, fmt.Sprintf("alarm %s on %s", a.GetAlarm(), names[a.GetMemberId()]))
		}
		for _, e := range v.status.GetErrors() {
			e = strings.TrimSpace(e)
			if e != "etcdserver: no leader" && !strings.Contains(e, "alarm:") { // both are said already
				faults = append(faults, v.endpoint+": "+e)
			}
		}
	}
	slices.Sort(faults)
	return slices.Compact(faults)
}

// unasked names the voters that none of the answers came from: two endpoints
// may lead to the same machine.
func unasked(views []view, names map[uint64]string) []string {
	asked := map[uint64]bool{}
	for _, v := range views {
		asked[v.status.GetMemberId()] = true
	}
	var missing []string
	for id, name := range names {
		if !asked[id] {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return []string{"no endpoint leads to " + strings.Join(missing, ", ")}
}
