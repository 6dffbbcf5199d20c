package talos

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/installer"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
)

// Texts of the answers.
const (
	withReboot    = "Applied configuration with a reboot"
	withoutReboot = "Applied configuration without a reboot"
	atNextBoot    = "Staged configuration to be applied after the next reboot"
)

// applyMode decides how a configuration comes into force, and refuses one that cannot. Since 1.14, Talos
// never restarts for a configuration.
func applyMode(m *machine, next *machineconfig.Config, mode pb.ApplyConfigurationRequest_Mode) (
	_ pb.ApplyConfigurationRequest_Mode, details string, _ error) {
	const reboot, noReboot = pb.ApplyConfigurationRequest_REBOOT, pb.ApplyConfigurationRequest_NO_REBOOT
	var restart error
	if m.installed != nil && next != nil && m.runs.Minor() < 14 {
		restart = m.installed.NeedsRestart(next)
	}
	switch {
	case mode == pb.ApplyConfigurationRequest_STAGED:
		return mode, atNextBoot, nil
	case mode == reboot && m.installed == nil:
		return noReboot, withoutReboot, nil
	case mode == reboot && m.runs.Minor() >= 14:
		return mode, "", status.Error(codes.Unimplemented, "the REBOOT mode is not supported, "+
			"please use AUTO or NO_REBOOT modes instead")
	case mode == reboot:
		return mode, withReboot, nil
	case mode == pb.ApplyConfigurationRequest_AUTO && restart != nil:
		return reboot, withReboot + ": " + restart.Error(), nil
	case mode == pb.ApplyConfigurationRequest_AUTO:
		return noReboot, withoutReboot, nil
	case restart != nil:
		return mode, "", status.Error(codes.InvalidArgument, restart.Error())
	}
	return mode, withoutReboot, nil
}

// apply brings a configuration into force.
func (p *power) apply(m *machine, c *machineconfig.Config, req *pb.ApplyConfigurationRequest,
	mode pb.ApplyConfigurationRequest_Mode) {
	delays := p.world.config.Delays
	if mode != pb.ApplyConfigurationRequest_TRY {
		m.tried, m.saved = nil, true
	}
	switch {
	case mode == pb.ApplyConfigurationRequest_STAGED:
		m.staged = c
		if m.installed != nil {
			p.world.configured(m)
		}
	case m.installed == nil:
		m.staged = c
		ref := c.Provider.Machine().Install().Image()
		image, err := p.world.resolve(m, ref)
		if m.spec.Version == "" {
			m.boots.Next = installer.System{Release: cmp.Or(machineconfig.ImageTag(ref), installer.ISO)}
		}
		if err == nil {
			m.boots.Next.Schematic = cmp.Or(m.spec.Schematic, image.Schematic)
		}
		p.boot(m, delays.Install)
	case mode == pb.ApplyConfigurationRequest_REBOOT:
		m.staged, m.applied = c, true
		p.restart(m, "", delays.Stop)
	case mode == pb.ApplyConfigurationRequest_TRY:
		p.try(m, c, tryTimeout(req))
	default:
		m.staged = nil
		p.use(m, c)
	}
}

func tryTimeout(req *pb.ApplyConfigurationRequest) time.Duration {
	return cmp.Or(req.GetTryModeTimeout().AsDuration(), constants.ConfigTryTimeout)
}

// try uses a configuration until the time is over or another one comes.
func (p *power) try(m *machine, c *machineconfig.Config, within time.Duration) {
	before := cmp.Or(m.tried, m.installed)
	m.tried = before
	p.use(m, c)
	p.world.after(m, within, func() {
		if m.tried == before && m.installed == c {
			m.tried = nil
			p.use(m, before)
		}
	})
}

// use brings a configuration into force while the machine runs.
func (p *power) use(m *machine, c *machineconfig.Config) {
	was, before := m.installed, m.machineSpec()
	moved := !slices.Equal(was.VirtualIPs(), c.VirtualIPs())
	if moved {
		p.etcd.Resign(m.etcd)
	}
	m.installed = c
	p.world.configured(m)
	if moved {
		p.etcd.Advance()
	}
	if !was.ServesAs(c) {
		m.server.retire()
		if err := p.serve(m, p.signer(c)); err != nil {
			p.world.fail(m, err)
		}
	}
	// A changed image of the kubelet or the API server is pulled and started at once, as is the kubelet
	// with other labels and taints; Talos itself stays until it is upgraded.
	if spec := m.machineSpec(); m.ready && !reflect.DeepEqual(before, spec) {
		callLater(p.world, p.world.config.Hooks.OnMachineConfigured, spec)
	}
}
