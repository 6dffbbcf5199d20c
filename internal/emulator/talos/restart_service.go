package talos

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/installer"
)

// admits reports whether a sequence may begin beside the one that runs. If not, only an event tells the
// caller (internal/app/machined/pkg/runtime/sequencer.go).
func (p *power) admits(m *machine, sequence, actor string) bool {
	switch m.doing {
	case runtime.MachineStageUpgrading, runtime.MachineStageShuttingDown, runtime.MachineStageInstalling:
	case runtime.MachineStageRebooting, runtime.MachineStageResetting:
		if sequence == "reboot" {
			return true
		}
	default:
		return true
	}
	p.world.publish(m, actor, &pb.SequenceEvent{Sequence: sequence, Error: &common.Error{
		Code: common.Code_LOCKED, Message: "sequence not started: locked"}})
	return false
}

// Reboot drains nothing. The mode FORCE stops nothing either; kexec, which POWERCYCLE avoids, saves no time
// here.
func (s *machineService) Reboot(ctx context.Context, req *pb.RebootRequest) (*pb.RebootResponse, error) {
	m, actor := requestOf(ctx).Target, uuid.NewString()
	if s.power.admits(m, "reboot", actor) {
		takes := s.world.config.Delays.Stop
		if req.GetMode() == pb.RebootRequest_FORCE {
			takes = 0
		}
		s.power.restart(m, actor, takes)
	}
	return &pb.RebootResponse{Messages: []*pb.Reboot{{ActorId: actor}}}, nil
}

// Rollback lets the other system on the disk boot, whatever sequence runs. It tells no actor.
func (s *machineService) Rollback(ctx context.Context, _ *pb.RollbackRequest) (*pb.RollbackResponse, error) {
	m := requestOf(ctx).Target
	if err := m.boots.Flip(); err != nil {
		return nil, err
	}
	s.power.restart(m, "", s.world.config.Delays.Stop)
	return &pb.RollbackResponse{Messages: []*pb.Rollback{{}}}, nil
}

// Upgrade is the call of Talos before 1.13, which 1.13 still has. It checks the image and, on control planes,
// etcd. Then the machine stops what it runs, installs, and restarts by itself. The emulator drains nothing:
// it has no Kubernetes.
func (s *machineService) Upgrade(ctx context.Context, req *pb.UpgradeRequest) (*pb.UpgradeResponse, error) {
	m, actor := requestOf(ctx).Target, uuid.NewString()
	if m.installed == nil {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}
	image, err := s.world.resolve(m, req.GetImage())
	if err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", req.GetImage(), err)
	}
	if m.controlPlane() && !req.GetForce() && !req.GetPreserve() {
		if err := s.etcd.Upgradable(m.etcd); err != nil {
			return nil, err
		}
	}
	delays := s.world.config.Delays
	again := func() { s.power.boot(m, delays.Boot) }
	switch {
	case req.GetStage() && s.power.admits(m, "stageUpgrade", actor):
		m.upgradeAt = req.GetImage()
		s.world.sequence(m, actor, "stageUpgrade", pb.SequenceEvent_START)
		s.power.leave(m, runtime.MachineStageUpgrading, delays.Stop, again)
	case !req.GetStage() && s.power.admits(m, "upgrade", actor):
		s.world.sequence(m, actor, "upgrade", pb.SequenceEvent_START)
		s.power.leave(m, runtime.MachineStageUpgrading, delays.Install, func() {
			if err := installer.Preflight(m.runs, image); err != nil {
				s.world.publish(m, actor, &pb.SequenceEvent{Sequence: "upgrade", Error: &common.Error{
					Code: common.Code_FATAL, Message: "sequence failed: error running phase 9 in upgrade " +
						"sequence: task 1/1: failed, exit code 1"}})
			} else {
				m.boots.Install(image)
			}
			again()
		})
	}
	return &pb.UpgradeResponse{Messages: []*pb.Upgrade{
		{Ack: "Upgrade request received", ActorId: actor}}}, nil
}
