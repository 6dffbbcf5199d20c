package talos

import (
	"context"
	"fmt"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What ApplyConfiguration tells about how a configuration took force.
const (
	withoutReboot = "Applied configuration without a reboot"
	withReboot    = "Applied configuration with a reboot"
	stagedOnly    = "Staged configuration to be applied after the next reboot"
)

// ApplyConfiguration takes a configuration from anyone in maintenance mode, and
// from admins afterwards. The first one installs the machine: its API goes away
// and comes back with other certificates.
func (s *machineService) ApplyConfiguration(ctx context.Context, req *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	f, r := s.fleet, requestOf(ctx)
	f.mu.Lock()
	defer f.unlock()
	m := r.target
	if m.installed != nil && !r.roles.Includes(role.Admin) {
		return nil, notAuthorized()
	}
	c, warnings, err := parse(req.GetData())
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case c == nil && m.installed != nil:
		return nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain v1alpha1 config, "+
			"did you mean to patch the machine config instead?")
	}
	mode, details := applyMode(m.installed, c, req.GetMode())
	if req.GetDryRun() {
		details = fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\n", details)
	} else if c != nil { // a configuration without a machine section leaves maintenance mode as it is
		f.apply(m, c, mode)
	}
	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{
		{Mode: mode, Warnings: warnings, ModeDetails: details},
	}}, nil
}

// applyMode says how next comes into force. The emulator reboots for another
// role or CA only; Talos has a longer list.
func applyMode(now, next *installed, asked machineapi.ApplyConfigurationRequest_Mode) (machineapi.ApplyConfigurationRequest_Mode, string) {
	const (
		auto     = machineapi.ApplyConfigurationRequest_AUTO
		reboot   = machineapi.ApplyConfigurationRequest_REBOOT
		noReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
		staged   = machineapi.ApplyConfigurationRequest_STAGED
	)
	switch {
	case asked == staged:
		return staged, stagedOnly
	case now == nil && (asked == auto || asked == reboot):
		return noReboot, withoutReboot
	case asked == reboot:
		return reboot, withReboot
	case asked == auto && (now.controlPlane != next.controlPlane || now.ca != next.ca):
		return reboot, withReboot
	case asked == auto:
		return noReboot, withoutReboot
	default:
		return asked, withoutReboot
	}
}

func (f *Fleet) apply(m *machine, c *installed, mode machineapi.ApplyConfigurationRequest_Mode) {
	switch {
	case mode == machineapi.ApplyConfigurationRequest_STAGED:
		m.staged = c
	case m.installed == nil:
		m.staged = c
		f.boot(m, f.config.Delays.Install)
	case mode == machineapi.ApplyConfigurationRequest_REBOOT:
		m.staged = c
		f.boot(m, f.config.Delays.Boot)
	default:
		moved := !slices.Equal(virtualIPs(m.installed.config), virtualIPs(c.config))
		if moved {
			f.resign(m)
		}
		m.installed = c
		if moved {
			f.advanceEtcd()
		}
	}
}
