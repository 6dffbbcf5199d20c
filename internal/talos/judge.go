package talos

import (
	"fmt"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// judge returns nil if etcd is whole: exactly the wanted voters, each of which
// was asked itself, and all agree. Otherwise it says what is missing, how far
// etcd has come first.
func judge(voters int, views []view) error {
	names, problems := memberNames(views), problemsOf(views)
	faults := slices.Concat(
		unanswered(problems),
		disagreement(views, names),
		leadership(views, names),
		complaints(views, names),
	)
	head, complete := progress(voters, views, names)
	if complete && len(faults) == 0 {
		faults = unasked(views, names)
	}
	if complete && len(faults) == 0 {
		return nil
	}
	err := closed(head, faults, problems)
	if noEtcd(views) {
		return &gate.Finding{Kind: gate.EtcdDown, Err: err}
	}
	return err
}

// noEtcd reports whether every control plane answers and none runs etcd.
func noEtcd(views []view) bool {
	return !slices.ContainsFunc(views, func(v view) bool { return v.problem == nil || v.problem.what != etcdDown })
}

func problemsOf(views []view) []*problem {
	var all []*problem
	for _, v := range views {
		if v.problem != nil {
			all = append(all, v.problem)
		}
	}
	return all
}

// progress counts voters and learners, as the first control plane with a list has them.
func progress(voters int, views []view, names map[uint64]string) (string, bool) {
	var members []*machineapi.EtcdMember
	for _, v := range views {
		if members == nil {
			members = v.members
		}
	}
	if members == nil {
		return "etcd: no voter answers", false
	}
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
	if len(learners) > 0 {
		head += fmt.Sprintf(", %s (%s)", count(len(learners), "learner"), strings.Join(learners, ", "))
	}
	return head, has == voters && len(learners) == 0
}
