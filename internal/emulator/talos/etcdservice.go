package talos

import (
	"context"
	"errors"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// What etcd says.
const (
	etcdNoLeader   = "etcdserver: no leader"
	etcdNoLearners = "etcdserver: rpc not supported for learner"
)

// localMember returns the target's own member if its process is up. A real
// machine lets the call hang until its deadline; here the refusal comes at once.
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

// EtcdMemberList asks the local member or, unless told otherwise, any member of
// a control plane that the machine knows of.
func (s *machineService) EtcdMemberList(ctx context.Context, req *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	f, m := s.fleet, requestOf(ctx).target
	f.mu.Lock()
	defer f.unlock()
	e, err := localMember(m, "member list")
	switch {
	case err != nil && (req.GetQueryLocal() || !m.controlPlane()):
		return nil, err
	case req.GetQueryLocal() && e.learner:
		return nil, errors.New(etcdNoLearners)
	case e == nil || e.learner:
		if e = f.anyVoter(m); e == nil {
			return nil, errors.New("no controlplane endpoints discovered yet")
		}
	}
	if e.cluster.elect() == 0 {
		return nil, errors.New(etcdNoLeader)
	}
	list := &machineapi.EtcdMembers{}
	for _, x := range e.cluster.members {
		said := &machineapi.EtcdMember{
			Id: x.id, Hostname: x.name, IsLearner: x.learner,
			PeerUrls: []string{"https://" + x.machine.Address + ":2380"},
		}
		if x.name != "" {
			said.ClientUrls = []string{"https://" + x.machine.Address + ":2379"}
		}
		list.LegacyMembers = append(list.LegacyMembers, x.name)
		list.Members = append(list.Members, said)
	}
	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{list}}, nil
}

func (f *Fleet) anyVoter(m *machine) *member {
	for _, peer := range f.machines {
		if e := peer.etcd; e != nil && e.serves() && !e.learner && peer.installed.ca == m.installed.ca {
			return e
		}
	}
	return nil
}

// EtcdStatus is the one call that a learner answers too.
func (s *machineService) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	f, m := s.fleet, requestOf(ctx).target
	f.mu.Lock()
	defer f.unlock()
	e, err := localMember(m, "etcd status")
	if err != nil {
		return nil, err
	}
	said := &machineapi.EtcdMemberStatus{
		MemberId: e.id, ProtocolVersion: "3.6.9", StorageVersion: "3.6.0", DbSize: 4 << 20, DbSizeInUse: 2 << 20,
		Leader: e.cluster.elect(), RaftTerm: e.cluster.term, RaftIndex: e.cluster.index, RaftAppliedIndex: e.cluster.index,
		IsLearner: e.learner,
	}
	if said.Leader == 0 {
		said.Errors = append(said.Errors, etcdNoLeader)
	}
	for _, a := range alarms(e.cluster) {
		said.Errors = append(said.Errors, fmt.Sprintf("memberID:%d alarm:%s ", a.GetMemberId(), a.GetAlarm()))
	}
	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: said}}}, nil
}

// EtcdAlarmList lists the alarms of all members.
func (s *machineService) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	f, m := s.fleet, requestOf(ctx).target
	f.mu.Lock()
	defer f.unlock()
	e, err := localMember(m, "etcd alarm list")
	switch {
	case err != nil:
		return nil, err
	case e.learner:
		return nil, errors.New("failed to list etcd alarms: " + etcdNoLearners)
	case e.cluster.elect() == 0:
		return nil, errors.New("failed to list etcd alarms: " + etcdNoLeader)
	}
	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: alarms(e.cluster)}}}, nil
}

func alarms(c *etcdCluster) []*machineapi.EtcdMemberAlarm {
	var list []*machineapi.EtcdMemberAlarm
	for _, e := range c.members {
		if e.alarm != machineapi.EtcdMemberAlarm_NONE {
			list = append(list, &machineapi.EtcdMemberAlarm{MemberId: e.id, Alarm: e.alarm})
		}
	}
	return list
}
