package etcd

import (
	"errors"
	"fmt"
	"slices"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/apid"
)

// etcd's own errors.
const (
	noLeader   = "etcdserver: no leader"
	noLearners = "etcdserver: rpc not supported for learner"
)

// local returns the node's own member if its process is up. On a real machine the call hangs until its
// deadline; here the refusal comes at once.
func (n *Node) local(api string) (*member, error) {
	switch {
	case !n.host.ControlPlane():
		return nil, apid.OnlyOnControlPlanes(api)
	case n.member == nil || !n.member.serves():
		return nil, status.Error(codes.Unavailable, `last connection error: connection error: `+
			`desc = "transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"`)
	}
	return n.member, nil
}

// MemberList reads the list of the local member or, without QueryLocal, of any
// voter among the control planes.
func (d *Etcd) MemberList(n *Node, req *pb.EtcdMemberListRequest) (*pb.EtcdMemberListResponse, error) {
	e, err := n.local("member list")
	switch {
	case err != nil && (req.GetQueryLocal() || !n.host.ControlPlane()):
		return nil, err
	case req.GetQueryLocal() && e.learner:
		return nil, errors.New(noLearners)
	case e == nil || e.learner:
		if e = d.anyVoter(n); e == nil {
			return nil, errors.New("no controlplane endpoints discovered yet")
		}
	}
	if e.cluster.elect() == 0 {
		return nil, errors.New(noLeader)
	}
	d.seen()
	list := &pb.EtcdMembers{}
	for _, x := range e.cluster.members {
		url := "https://" + x.node.host.Address()
		listed := &pb.EtcdMember{
			Id: x.id, Hostname: x.name, IsLearner: x.learner, PeerUrls: []string{url + ":2380"},
		}
		if x.name != "" {
			listed.ClientUrls = []string{url + ":2379"}
		}
		list.LegacyMembers = append(list.LegacyMembers, x.name)
		list.Members = append(list.Members, listed)
	}
	return &pb.EtcdMemberListResponse{Messages: []*pb.EtcdMembers{list}}, nil
}

// Status is the one call that a learner answers, too.
func (d *Etcd) Status(n *Node) (*pb.EtcdStatusResponse, error) {
	e, err := n.local("etcd status")
	if err != nil {
		return nil, err
	}
	c := e.cluster
	state := &pb.EtcdMemberStatus{
		MemberId: e.id, IsLearner: e.learner, ProtocolVersion: Release, StorageVersion: "3.6.0",
		DbSize: 4 << 20, DbSizeInUse: 2 << 20,
		Leader: c.elect(), RaftTerm: c.term, RaftIndex: c.index, RaftAppliedIndex: c.index,
	}
	if size := d.config.DatabaseSize; size != nil {
		state.DbSize = size(e.node.host.Address())
		state.DbSizeInUse = state.DbSize / 2
	}
	if state.Leader == 0 {
		state.Errors = append(state.Errors, noLeader)
	}
	for _, a := range alarms(c) {
		text := fmt.Sprintf("memberID:%d alarm:%s ", a.GetMemberId(), a.GetAlarm())
		state.Errors = append(state.Errors, text)
	}
	return &pb.EtcdStatusResponse{Messages: []*pb.EtcdStatus{{MemberStatus: state}}}, nil
}

// AlarmList lists the alarms of all members.
func (d *Etcd) AlarmList(n *Node) (*pb.EtcdAlarmListResponse, error) {
	e, err := n.local("etcd alarm list")
	switch {
	case err != nil:
		return nil, err
	case e.learner:
		return nil, errors.New("failed to list etcd alarms: " + noLearners)
	case e.cluster.elect() == 0:
		return nil, errors.New("failed to list etcd alarms: " + noLeader)
	}
	list := []*pb.EtcdAlarm{{MemberAlarms: alarms(e.cluster)}}
	return &pb.EtcdAlarmListResponse{Messages: list}, nil
}

func alarms(c *group) []*pb.EtcdMemberAlarm {
	var list []*pb.EtcdMemberAlarm
	for _, e := range c.members {
		if e.alarm != pb.EtcdMemberAlarm_NONE {
			list = append(list, &pb.EtcdMemberAlarm{MemberId: e.id, Alarm: e.alarm})
		}
	}
	return list
}

// voter returns a member with a quorum, through which a control plane changes etcd.
func (d *Etcd) voter(n *Node, api string) (*member, error) {
	if !n.host.ControlPlane() {
		return nil, apid.OnlyOnControlPlanes(api)
	}
	e := d.anyVoter(n)
	switch {
	case e == nil:
		return nil, errors.New("failed to create etcd client: no controlplane endpoints discovered yet")
	case e.cluster.elect() == 0:
		return nil, errors.New(noLeader)
	}
	return e, nil
}

// RemoveMember removes a member, of a machine that is gone as a rule.
func (d *Etcd) RemoveMember(n *Node, req *pb.EtcdRemoveMemberByIDRequest) (
	*pb.EtcdRemoveMemberByIDResponse, error) {
	through, err := d.voter(n, "etcd remove member")
	if err != nil {
		return nil, err
	}
	c := through.cluster
	i := slices.IndexFunc(c.members, func(e *member) bool { return e.id == req.GetMemberId() })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "failed to remove member %d: etcdserver: member not found",
			req.GetMemberId())
	}
	if err := c.removable(c.members[i]); err != nil {
		return nil, fmt.Errorf("failed to remove member: failed to remove member %d: %w", req.GetMemberId(),
			err)
	}
	d.remove(c.members[i])
	return &pb.EtcdRemoveMemberByIDResponse{Messages: []*pb.EtcdRemoveMemberByID{{}}}, nil
}

// Leave removes the machine's own member and its data. Its etcd has stopped then, until the machine restarts.
// The real call tries for five minutes where this one fails at once.
func (d *Etcd) Leave(n *Node) (*pb.EtcdLeaveClusterResponse, error) {
	if _, err := d.voter(n, "etcd leave"); err != nil {
		return nil, err
	}
	if err := d.leave(n); err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}
	return &pb.EtcdLeaveClusterResponse{Messages: []*pb.EtcdLeaveCluster{{}}}, nil
}

// ForfeitLeadership moves the leadership to the first other member.
func (d *Etcd) ForfeitLeadership(n *Node) (*pb.EtcdForfeitLeadershipResponse, error) {
	if _, err := d.voter(n, "etcd forfeit leadership"); err != nil {
		return nil, err
	}
	failed := func(text string) error { return errors.New("failed to forfeit leadership: " + text) }
	leads, e := &pb.EtcdForfeitLeadership{}, n.member
	switch {
	case e == nil || e.removed:
		return nil, failed("failed to find local member")
	case len(e.cluster.members) == 1:
		return nil, failed("cannot forfeit leadership, only one member")
	case e.cluster.elect() == e.id:
		i := slices.IndexFunc(e.cluster.members, func(x *member) bool { return x != e })
		switch next := e.cluster.members[i]; {
		case next.learner:
			return nil, failed("etcdserver: bad leader transferee")
		case !next.serves():
			return nil, failed("etcdserver: request timed out, leader transfer took too long")
		default:
			e.cluster.leader, leads.Member = next.id, next.name
			e.cluster.term++
		}
	}
	return &pb.EtcdForfeitLeadershipResponse{Messages: []*pb.EtcdForfeitLeadership{leads}}, nil
}

// DisarmAlarms clears the alarms of all members.
func (d *Etcd) DisarmAlarms(n *Node) (*pb.EtcdAlarmDisarmResponse, error) {
	e, err := n.local("etcd alarm disarm")
	switch {
	case err != nil:
		return nil, err
	case e.learner:
		return nil, errors.New("failed to disarm etcd alarm: " + noLearners)
	case e.cluster.elect() == 0:
		return nil, errors.New("failed to disarm etcd alarm: " + noLeader)
	}
	disarmed := &pb.EtcdAlarmDisarm{MemberAlarms: alarms(e.cluster)}
	for _, x := range e.cluster.members {
		x.alarm = pb.EtcdMemberAlarm_NONE
	}
	return &pb.EtcdAlarmDisarmResponse{Messages: []*pb.EtcdAlarmDisarm{disarmed}}, nil
}

// Local is the error of a call to the node's own member, if that does not run.
func (n *Node) Local(api string) error {
	_, err := n.local(api)
	return err
}

// Members are the addresses of the members of a node's cluster.
func (d *Etcd) Members(n *Node) (all []string, err error) {
	e := d.anyVoter(n)
	if e == nil {
		return nil, errors.New(noLeader)
	}
	for _, x := range e.cluster.members {
		all = append(all, x.node.host.Address())
	}
	return all, nil
}

// RaiseAlarm sets an alarm of the node's member, if it has one; NONE clears it.
func (n *Node) RaiseAlarm(alarm pb.EtcdMemberAlarm_AlarmType) bool {
	if n.member == nil {
		return false
	}
	n.member.alarm = alarm
	return true
}
