package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// voter returns a member with a quorum, through which a control plane changes etcd.
func (s *machineService) voter(m *machine, api string) (*member, error) {
	if !m.controlPlane() {
		return nil, onlyOnControlPlanes(api)
	}
	e := s.etcd.anyVoter(m)
	switch {
	case e == nil:
		return nil, errors.New("failed to create etcd client: no controlplane endpoints discovered yet")
	case e.cluster.elect() == 0:
		return nil, errors.New(etcdNoLeader)
	}
	return e, nil
}

// removable is the check of etcd before it removes a member: the others must keep their quorum
// (etcd: server/etcdserver/server.go, mayRemoveMember).
func (c *etcdCluster) removable(e *member) error {
	var voters, active int
	for _, x := range c.members {
		if !x.learner {
			voters++
			if x.serves() {
				active++
			}
		}
	}
	switch {
	case e.learner:
	case voters == 1:
		return errors.New("etcdserver: re-configuration failed due to not enough started members")
	case e.serves() && active-1 < 1+(voters-1)/2:
		return errors.New("etcdserver: unhealthy cluster")
	}
	return nil
}

// EtcdRemoveMemberByID removes a member, of a machine that is gone as a rule.
func (s *machineService) EtcdRemoveMemberByID(ctx context.Context, req *pb.EtcdRemoveMemberByIDRequest) (
	*pb.EtcdRemoveMemberByIDResponse, error) {
	through, err := s.voter(requestOf(ctx).Target, "etcd remove member")
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
	s.etcd.remove(c.members[i])
	return &pb.EtcdRemoveMemberByIDResponse{Messages: []*pb.EtcdRemoveMemberByID{{}}}, nil
}

// EtcdLeaveCluster removes the machine's own member and its data. Its etcd has stopped then, until the
// machine restarts. The real call tries for five minutes where this one fails at once.
func (s *machineService) EtcdLeaveCluster(ctx context.Context, _ *pb.EtcdLeaveClusterRequest) (
	*pb.EtcdLeaveClusterResponse, error) {
	m := requestOf(ctx).Target
	if _, err := s.voter(m, "etcd leave"); err != nil {
		return nil, err
	}
	if err := s.etcd.leave(m); err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}
	return &pb.EtcdLeaveClusterResponse{Messages: []*pb.EtcdLeaveCluster{{}}}, nil
}

// leave removes the machine's member and its data.
func (d *etcd) leave(m *machine) error {
	if e := m.etcd; e != nil && !e.removed {
		if err := e.cluster.removable(e); err != nil {
			return fmt.Errorf("failed to remove member %d: %w", e.id, err)
		}
		d.remove(e)
	}
	m.etcd, m.leftEtcd = nil, true
	return nil
}

// remove ends a member. Its machine has no virtual address after that.
func (d *etcd) remove(e *member) {
	if e.machine.etcd == e {
		d.resign(e.machine)
	}
	e.leave()
	e.cluster.elect()
	d.settle(e.cluster)
	d.advance()
}

// EtcdForfeitLeadership moves the leadership to the first other member.
func (s *machineService) EtcdForfeitLeadership(ctx context.Context, _ *pb.EtcdForfeitLeadershipRequest) (
	*pb.EtcdForfeitLeadershipResponse, error) {
	m := requestOf(ctx).Target
	if _, err := s.voter(m, "etcd forfeit leadership"); err != nil {
		return nil, err
	}
	failed := func(text string) error { return errors.New("failed to forfeit leadership: " + text) }
	leads, e := &pb.EtcdForfeitLeadership{}, m.etcd
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

// EtcdAlarmDisarm clears the alarms of all members.
func (s *machineService) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (
	*pb.EtcdAlarmDisarmResponse, error) {
	e, err := localMember(requestOf(ctx).Target, "etcd alarm disarm")
	switch {
	case err != nil:
		return nil, err
	case e.learner:
		return nil, errors.New("failed to disarm etcd alarm: " + etcdNoLearners)
	case e.cluster.elect() == 0:
		return nil, errors.New("failed to disarm etcd alarm: " + etcdNoLeader)
	}
	disarmed := &pb.EtcdAlarmDisarm{MemberAlarms: alarms(e.cluster)}
	for _, x := range e.cluster.members {
		x.alarm = pb.EtcdMemberAlarm_NONE
	}
	return &pb.EtcdAlarmDisarmResponse{Messages: []*pb.EtcdAlarmDisarm{disarmed}}, nil
}

// EtcdDefragment has the machine's own member write its database anew, without what was deleted.
func (s *machineService) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (
	*pb.EtcdDefragmentResponse, error) {
	m := requestOf(ctx).Target
	if _, err := localMember(m, "etcd defragment"); err != nil {
		return nil, err
	}
	callLater(s.world, s.world.config.Hooks.OnDefragment, m.spec.Address)
	return &pb.EtcdDefragmentResponse{Messages: []*pb.EtcdDefragment{{}}}, nil
}
