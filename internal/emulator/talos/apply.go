package talos

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// live are the fields of the machine section, by their names in Go, that change without a restart. The
// sections debug and cluster do so as a whole, and every document but v1alpha1
// (internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_runtime.go).
var live = []string{
	"MachineCA", "MachineAcceptedCAs", "MachineCertSANs", // of the API
	"MachineControlPlane", "MachineKubelet", "MachinePods", "MachineSeccompProfiles", "MachineNodeLabels",
	"MachineNodeAnnotations", "MachineNodeTaints", // of Kubernetes
	"MachineTime", "MachineNetwork", "MachineSysctls", "MachineSysfs", "MachineKernel", "MachineLogging",
	"MachineRegistries", "MachineInstall",
}

// liveFeatures are those of the features.
var liveFeatures = []string{"KubernetesTalosAPIAccessConfig", "KubePrismSupport", "HostDNSSupport",
	"ImageCacheSupport", "FeatureNodeAddressSortAlgorithm"}

// needsRestart returns the error of a change that needs a restart.
func needsRestart(now, next config.Provider) error {
	was, is := now.RawV1Alpha1(), next.RawV1Alpha1().DeepCopy()
	is.ConfigDebug, is.ClusterConfig = was.ConfigDebug, was.ClusterConfig
	if is.MachineConfig != nil && was.MachineConfig != nil {
		keep(is.MachineConfig, was.MachineConfig, live)
		if is.MachineConfig.MachineFeatures != nil && was.MachineConfig.MachineFeatures != nil {
			keep(is.MachineConfig.MachineFeatures, was.MachineConfig.MachineFeatures, liveFeatures)
		}
	}
	if reflect.DeepEqual(was, is) {
		return nil
	}
	diff, err := diffOf(container.NewV1Alpha1(was), container.NewV1Alpha1(is))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}
	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}

// keep sets fields of one struct to their values in another.
func keep[T v1alpha1.MachineConfig | v1alpha1.FeaturesConfig](to, from *T, fields []string) {
	for _, field := range fields {
		reflect.ValueOf(to).Elem().FieldByName(field).Set(reflect.ValueOf(from).Elem().FieldByName(field))
	}
}

// Texts of the answers.
const (
	withReboot    = "Applied configuration with a reboot"
	withoutReboot = "Applied configuration without a reboot"
	atNextBoot    = "Staged configuration to be applied after the next reboot"
)

// applyMode decides how a configuration comes into force, and refuses one that cannot. Since 1.14, Talos
// never restarts for a configuration.
func applyMode(m *machine, next *installed, mode pb.ApplyConfigurationRequest_Mode) (
	_ pb.ApplyConfigurationRequest_Mode, details string, _ error) {
	const reboot, noReboot = pb.ApplyConfigurationRequest_REBOOT, pb.ApplyConfigurationRequest_NO_REBOOT
	var restart error
	if m.installed != nil && next != nil && m.runs.minor() < 14 {
		restart = needsRestart(m.installed.config, next.config)
	}
	switch {
	case mode == pb.ApplyConfigurationRequest_STAGED:
		return mode, atNextBoot, nil
	case mode == reboot && m.installed == nil:
		return noReboot, withoutReboot, nil
	case mode == reboot && m.runs.minor() >= 14:
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

// difference is what a dry run shows of two configurations.
func difference(now *installed, next config.Provider) (string, error) {
	var before config.Encoder
	if now != nil {
		before = now.config
	}
	text, err := diffOf(before, next)
	if err != nil {
		return "", fmt.Errorf("failed to generate diff: %w", err)
	}
	return "Config diff:\n\n" + cmp.Or(text, "No changes."), nil
}

// diffOf shows two configurations as one hunk of a unified diff: what differs lies between what they begin
// with and what they end with.
func diffOf(was, is config.Encoder) (string, error) {
	var texts [2][]string
	for i, c := range []config.Encoder{was, is} {
		if c == nil {
			continue
		}
		text, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
		if err != nil {
			return "", err
		}
		texts[i] = strings.SplitAfter(string(text), "\n")
	}
	a, b := texts[0], texts[1]
	same, end := 0, 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	for end < min(len(a), len(b))-same && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	gone, added := a[same:len(a)-end], b[same:len(b)-end]
	if len(gone)+len(added) == 0 {
		return "", nil
	}
	text := fmt.Sprintf("--- a\n+++ b\n@@ -%d,%d +%d,%d @@\n", same+1, len(gone), same+1, len(added))
	return text + prefixed("-", gone) + prefixed("+", added), nil
}

func prefixed(sign string, lines []string) (text string) {
	for _, line := range lines {
		text += sign + strings.TrimSuffix(line, "\n") + "\n"
	}
	return text
}

// apply brings a configuration into force.
func (p *power) apply(m *machine, c *installed, req *pb.ApplyConfigurationRequest,
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
		image, err := p.world.resolve(m, c.config.Machine().Install().Image())
		if m.spec.Version == "" {
			m.boots.next = system{release: cmp.Or(imageTag(c.config.Machine().Install().Image()), iso)}
		}
		if err == nil {
			m.boots.next.schematic = cmp.Or(m.spec.Schematic, image.schematic)
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
func (p *power) try(m *machine, c *installed, within time.Duration) {
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
func (p *power) use(m *machine, c *installed) {
	was, before := m.installed, p.world.machineSpec(m)
	moved := !slices.Equal(virtualIPs(was.config), virtualIPs(c.config))
	if moved {
		p.etcd.resign(m)
	}
	m.installed = c
	p.world.configured(m)
	if moved {
		p.etcd.advance()
	}
	if was.ca != c.ca || !slices.Equal(was.accepted, c.accepted) || !slices.Equal(was.sans, c.sans) {
		m.server.retire()
		if err := p.serve(m, p.signer(c)); err != nil {
			p.world.fail(m, err)
		}
	}
	// A changed image of the kubelet or the API server is pulled and started at once, as is the kubelet
	// with other labels and taints; Talos itself stays until it is upgraded.
	if spec := p.world.machineSpec(m); m.ready && !reflect.DeepEqual(before, spec) {
		callLater(p.world, p.world.config.Hooks.OnMachineConfigured, spec)
	}
}
