package talos

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// etcdRelease is that of every member.
const etcdRelease = "3.6.9"

// etcd's own errors.
const (
	etcdNoLeader   = "etcdserver: no leader"
	etcdNoLearners = "etcdserver: rpc not supported for learner"
)

// localMember returns the target's own member if its process is up. On a real
// machine the call hangs until its deadline; here the refusal comes at once.
func localMember(m *machine, api string) (*member, error) {
	switch {
	case !m.controlPlane():
		return nil, onlyOnControlPlanes(api)
	case m.etcd == nil || !m.etcd.serves():
		return nil, status.Error(codes.Unavailable, `last connection error: connection error: `+
			`desc = "transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"`)
	}
	return m.etcd, nil
}

// EtcdMemberList reads the list of the local member or, without QueryLocal, of any
// voter among the control planes.
func (s *machineService) EtcdMemberList(
	ctx context.Context, req *pb.EtcdMemberListRequest,
) (*pb.EtcdMemberListResponse, error) {
	m := requestOf(ctx).Target
	e, err := localMember(m, "member list")
	switch {
	case err != nil && (req.GetQueryLocal() || !m.controlPlane()):
		return nil, err
	case req.GetQueryLocal() && e.learner:
		return nil, errors.New(etcdNoLearners)
	case e == nil || e.learner:
		if e = s.etcd.anyVoter(m); e == nil {
			return nil, errors.New("no controlplane endpoints discovered yet")
		}
	}
	if e.cluster.elect() == 0 {
		return nil, errors.New(etcdNoLeader)
	}
	s.etcd.seen()
	list := &pb.EtcdMembers{}
	for _, x := range e.cluster.members {
		url := "https://" + x.machine.spec.Address
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

// EtcdStatus is the one call that a learner answers, too.
func (s *machineService) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*pb.EtcdStatusResponse, error) {
	e, err := localMember(requestOf(ctx).Target, "etcd status")
	if err != nil {
		return nil, err
	}
	c := e.cluster
	state := &pb.EtcdMemberStatus{
		MemberId: e.id, IsLearner: e.learner, ProtocolVersion: etcdRelease, StorageVersion: "3.6.0",
		DbSize: 4 << 20, DbSizeInUse: 2 << 20,
		Leader: c.elect(), RaftTerm: c.term, RaftIndex: c.index, RaftAppliedIndex: c.index,
	}
	if size := s.world.config.Hooks.DatabaseSize; size != nil {
		state.DbSize = size(e.machine.spec.Address)
		state.DbSizeInUse = state.DbSize / 2
	}
	if state.Leader == 0 {
		state.Errors = append(state.Errors, etcdNoLeader)
	}
	for _, a := range alarms(c) {
		text := fmt.Sprintf("memberID:%d alarm:%s ", a.GetMemberId(), a.GetAlarm())
		state.Errors = append(state.Errors, text)
	}
	return &pb.EtcdStatusResponse{Messages: []*pb.EtcdStatus{{MemberStatus: state}}}, nil
}

// EtcdAlarmList lists the alarms of all members.
func (s *machineService) EtcdAlarmList(
	ctx context.Context, _ *emptypb.Empty,
) (*pb.EtcdAlarmListResponse, error) {
	e, err := localMember(requestOf(ctx).Target, "etcd alarm list")
	switch {
	case err != nil:
		return nil, err
	case e.learner:
		return nil, errors.New("failed to list etcd alarms: " + etcdNoLearners)
	case e.cluster.elect() == 0:
		return nil, errors.New("failed to list etcd alarms: " + etcdNoLeader)
	}
	list := []*pb.EtcdAlarm{{MemberAlarms: alarms(e.cluster)}}
	return &pb.EtcdAlarmListResponse{Messages: list}, nil
}

func alarms(c *etcdCluster) []*pb.EtcdMemberAlarm {
	var list []*pb.EtcdMemberAlarm
	for _, e := range c.members {
		if e.alarm != pb.EtcdMemberAlarm_NONE {
			list = append(list, &pb.EtcdMemberAlarm{MemberId: e.id, Alarm: e.alarm})
		}
	}
	return list
}
