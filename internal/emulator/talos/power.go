package talos

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// actor is the id that Talos gives a sequence which a caller started.
const actor = "00000000-0000-4000-8000-000000000000"

func (s *machineService) Reboot(ctx context.Context, _ *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	s.fleet.mu.Lock()
	defer s.fleet.unlock()
	s.fleet.boot(requestOf(ctx).target, s.fleet.config.Delays.Boot)
	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: actor}}}, nil
}

func (s *machineService) Shutdown(ctx context.Context, _ *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse, error) {
	s.fleet.mu.Lock()
	defer s.fleet.unlock()
	s.fleet.shutDown(requestOf(ctx).target)
	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// Reset leaves etcd when asked to do so gracefully, wipes the disks, and starts
// in maintenance mode or switches off.
func (s *machineService) Reset(ctx context.Context, req *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	f := s.fleet
	f.mu.Lock()
	defer f.unlock()
	m := requestOf(ctx).target
	f.resign(m)
	if m.etcd != nil && req.GetGraceful() {
		m.etcd.leave()
	}
	f.wipe(m)
	if hook := f.config.Hooks.OnReset; hook != nil {
		address := m.Address
		f.later(func() { hook(address) })
	}
	if req.GetReboot() {
		f.boot(m, f.config.Delays.Boot)
	} else {
		f.shutDown(m)
	}
	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: actor}}}, nil
}

// shutDown lets the answer to the caller out before the machine is off.
func (f *Fleet) shutDown(m *machine) {
	f.stop(m)
	m.stage = Off
	if hook := f.config.Hooks.OnShutdown; hook != nil {
		address := m.Address
		f.later(func() { hook(address) })
	}
}
