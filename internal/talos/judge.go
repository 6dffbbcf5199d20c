package talos

import (
	"errors"
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
	names := memberNames(views)
	faults := slices.Concat(
		unanswered(views),
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
	err := errors.New(strings.Join(append([]string{head}, faults...), "; "))
	for _, v := range views {
		if v.problem != nil && v.problem.permanent {
			return gate.Permanent(err)
		}
	}
	return err
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

// unanswered lists the machines that gave no full answer; equal reasons share a line.
func unanswered(views []view) []string {
	var reasons []string
	who := map[string][]string{}
	for _, v := range views {
		if v.problem == nil {
			continue
		}
		if who[v.problem.what] == nil {
			reasons = append(reasons, v.problem.what)
		}
		who[v.problem.what] = append(who[v.problem.what], v.endpoint)
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(who[reason], ", ") + ": " + reason
	}
	return reasons
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
