package talos_test

import (
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
)

// memberOf is the status of machine n's member.
func (l *lab) memberOf(n int) *machineapi.EtcdMemberStatus {
	l.t.Helper()
	s, err := l.as(role.Admin, l.address(n)).EtcdStatus(within(l.t))
	if err != nil {
		l.t.Fatal(err)
	}
	return s.GetMessages()[0].GetMemberStatus()
}

func (l *lab) leave(n int) error {
	return l.as(role.Admin, l.address(n)).EtcdLeaveCluster(within(l.t), &machineapi.EtcdLeaveClusterRequest{})
}

func TestTheLeadershipMovesToAnotherMember(t *testing.T) {
	l := newLab(t)
	l.quorum(3, 1)
	forfeit := func(n int) (string, error) {
		answer, err := l.as(role.Admin, l.address(n)).EtcdForfeitLeadership(within(t),
			&machineapi.EtcdForfeitLeadershipRequest{})
		if err != nil {
			return "", err
		}
		return answer.GetMessages()[0].GetMember(), nil
	}
	if to, err := forfeit(2); err != nil || to != "" {
		t.Errorf("one that does not lead: %q, %v", to, err)
	}
	if to, err := forfeit(1); err != nil || to != "blue-02" ||
		l.memberOf(3).GetLeader() != l.memberOf(2).GetMemberId() {
		t.Errorf("the leader: %q, %v", to, err)
	}
	_, err := forfeit(4)
	wantRefusal(t, err, codes.Unimplemented,
		"etcd forfeit leadership is only available on control plane nodes")
	alone := newLab(t)
	alone.quorum(1, 0)
	_, err = alone.as(role.Admin, alone.address(1)).EtcdForfeitLeadership(within(t),
		&machineapi.EtcdForfeitLeadershipRequest{})
	wantRefusal(t, err, codes.Unknown, "cannot forfeit leadership, only one member")
}

func TestAMemberThatLeftJoinsAgainAfterARestart(t *testing.T) {
	l := newLab(t)
	l.quorum(3, 0)
	if err := l.leave(3); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	if got := l.members(l.address(1)); got != "blue-01, blue-02" {
		t.Errorf("members: %s", got)
	}
	if err := l.as(role.Admin, l.address(3)).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	if got := l.members(l.address(1)); got != "blue-01, blue-02, blue-03" {
		t.Errorf("after the restart: %s", got)
	}
}

func TestNoMemberLeavesIfTheOthersLoseTheirQuorum(t *testing.T) {
	l := newLab(t)
	l.quorum(3, 0)
	l.fleet.Halt(l.address(3))
	wantRefusal(t, l.leave(2), codes.Unknown, "etcdserver: unhealthy cluster")
	alone := newLab(t)
	alone.quorum(1, 0)
	wantRefusal(t, alone.leave(1), codes.Unknown,
		"etcdserver: re-configuration failed due to not enough started members")
}

func TestAMemberIsRemovedByItsID(t *testing.T) {
	l := newLab(t)
	l.quorum(3, 0)
	id := l.memberOf(3).GetMemberId()
	remove := func(id uint64) error {
		return l.as(role.Admin, l.address(1)).EtcdRemoveMemberByID(within(t),
			&machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	}
	wantRefusal(t, remove(7), codes.NotFound, "etcdserver: member not found")
	l.fleet.Halt(l.address(3))
	if err := remove(id); err != nil {
		t.Fatal(err)
	}
	if got := l.members(l.address(1)); got != "blue-01, blue-02" {
		t.Errorf("members: %s", got)
	}
	l.bootNew(3)
	l.clock.advance(10 * step)
	if got := l.members(l.address(1)); got != "blue-01, blue-02" {
		t.Errorf("a removed member serves again: %s", got)
	}
	if got := l.status(l.address(3)); got.Stage.String() != "booting" || got.Status.Ready {
		t.Errorf("its machine is %+v", got)
	}
}

func TestAlarmsAreDisarmed(t *testing.T) {
	l := newLab(t)
	l.quorum(1, 0)
	if err := l.fleet.RaiseAlarm("blue-01", "NOSPACE"); err != nil {
		t.Fatal(err)
	}
	answer, err := l.as(role.Operator, l.address(1)).EtcdAlarmDisarm(within(t))
	if err != nil || len(answer.GetMessages()[0].GetMemberAlarms()) != 1 {
		t.Fatalf("%v, %v", answer, err)
	}
	if errs := strings.Join(l.memberOf(1).GetErrors(), ""); errs != "" {
		t.Errorf("errors: %s", errs)
	}
}
