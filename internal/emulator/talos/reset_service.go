package talos

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// partitions are those of a system disk that a reset wipes: EPHEMERAL holds etcd's data and images, STATE the
// configuration. Further disks, and with them user volumes, are not emulated.
type partitions struct{ system, state, ephemeral bool }

var everything = partitions{system: true, state: true, ephemeral: true}

// partitionsOf reads a request as Talos does, which knows its volumes by their labels
// (internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go).
func partitionsOf(req *pb.ResetRequest) (p partitions, _ error) {
	named := req.GetSystemPartitionsToWipe()
	switch mode := req.GetMode(); {
	case mode == pb.ResetRequest_SYSTEM_DISK && len(req.GetUserDisksToWipe()) > 0:
		return p, errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support " +
			"UserDisksToWipe parameter")
	case mode == pb.ResetRequest_USER_DISKS && len(named) > 0:
		return p, errors.New("reset failed: invalid input, wipe mode USER_DISKS doesn't support " +
			"SystemPartitionsToWipe parameter")
	case mode == pb.ResetRequest_USER_DISKS:
		return p, nil
	case len(named) == 0:
		return everything, nil
	}
	for _, one := range named {
		switch one.GetLabel() {
		case constants.EphemeralPartitionLabel:
			p.ephemeral = p.ephemeral || one.GetWipe()
		case constants.StatePartitionLabel:
			p.state = p.state || one.GetWipe()
		case constants.MetaPartitionLabel:
		default:
			return p, fmt.Errorf("failed to get volume status with label %[1]q: resource "+
				"VolumeStatuses.block.talos.dev(runtime/%[1]s@undefined) doesn't exist", one.GetLabel())
		}
	}
	return p, nil
}

// Reset leaves etcd if it is graceful, stops everything, wipes, and restarts or switches off. The answer
// comes before. An error ends it, and the machine restarts as it was (internal/app/machined/main.go).
func (s *machineService) Reset(ctx context.Context, req *pb.ResetRequest) (*pb.ResetResponse, error) {
	m, actor := requestOf(ctx).Target, uuid.NewString()
	wipe, err := partitionsOf(req)
	if err != nil {
		return nil, err
	}
	answer := &pb.ResetResponse{Messages: []*pb.Reset{{ActorId: actor}}}
	if !s.power.admits(m, "reset", actor) {
		return answer, nil
	}
	delays := s.world.config.Delays
	s.world.sequence(m, actor, "reset", pb.SequenceEvent_START)
	if req.GetGraceful() {
		err = s.etcd.LeaveGracefully(m.etcd)
	}
	if err != nil {
		s.world.publish(m, actor, &pb.SequenceEvent{Sequence: "reset", Error: &common.Error{
			Code: common.Code_FATAL, Message: "sequence failed: error running phase 4 in reset sequence: " +
				"task 1/1: failed, " + err.Error()}})
		s.power.leave(m, runtime.MachineStageRebooting, delays.Stop,
			func() { s.power.boot(m, delays.Boot) })
		return answer, nil
	}
	s.world.stopsAll(m, actor, pb.TaskEvent_START)
	s.power.leave(m, runtime.MachineStageResetting, delays.Stop, func() {
		s.world.stopsAll(m, actor, pb.TaskEvent_STOP)
		s.power.wipe(m, wipe)
		if hook := s.world.config.Hooks.OnReset; hook != nil && wipe != (partitions{}) {
			s.world.later(func() { hook(m.spec.Address, wipe.ephemeral) })
		}
		if req.GetReboot() {
			s.power.boot(m, delays.Boot)
		} else {
			s.power.shutDown(m)
		}
	})
	return answer, nil
}

// wipe empties partitions of a machine's disk. The etcd cluster still counts its member.
func (p *power) wipe(m *machine, which partitions) {
	if which.ephemeral {
		p.etcd.Wipe(m.etcd)
		m.images = nil
	}
	if which.state {
		m.installed, m.staged, m.tried = nil, nil, nil
	}
	if which.system {
		m.boots, m.upgradeAt = m.blank(), ""
	}
}
