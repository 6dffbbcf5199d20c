package talos_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

const (
	auto     = machineapi.ApplyConfigurationRequest_AUTO
	noReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	reboot   = machineapi.ApplyConfigurationRequest_REBOOT
	staged   = machineapi.ApplyConfigurationRequest_STAGED
	try      = machineapi.ApplyConfigurationRequest_TRY

	files   = "machine: {files: [{path: /var/etc/a, permissions: 0o644, op: create, content: a}]}"
	sysctls = "machine: {sysctls: {net.core.somaxconn: '65535'}}"
)

// change applies a configuration with the patches to the control plane number 1.
func (l *lab) change(mode machineapi.ApplyConfigurationRequest_Mode, dry bool, patches ...string) (
	*machineapi.ApplyConfiguration, error) {
	l.t.Helper()
	answer, err := l.as(role.Admin, l.address(1)).ApplyConfiguration(within(l.t),
		&machineapi.ApplyConfigurationRequest{Mode: mode, DryRun: dry, TryModeTimeout: durationpb.New(step),
			Data: l.machineConfig(machine.TypeControlPlane, patches...)})
	if err != nil {
		return nil, err
	}
	return answer.GetMessages()[0], nil
}

// has reports whether a configuration of control plane number 1, active or persistent, has a text.
func (l *lab) has(id, text string) bool {
	l.t.Helper()
	found, err := safe.StateGetByID[*config.MachineConfig](within(l.t),
		l.as(role.Admin, l.address(1)).COSI, id)
	if state.IsNotFoundError(err) {
		return false // a machine reads its configuration at its start, and shows what changes on the disk
	}
	if err != nil {
		l.t.Fatal(err)
	}
	data, err := found.Provider().Bytes()
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.Contains(string(data), text)
}

// What restarts a machine is what Talos 1.13 does not list.
func TestChangesRestartAMachineByTheRuleOfTalos(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	for name, c := range map[string]struct {
		patch    string
		restarts bool
	}{
		"sysctls":                {sysctls, false},
		"files":                  {files, true},
		"environment":            {"machine: {env: {A: b}}", true},
		"the kubelet":            {"machine: {kubelet: {extraArgs: {v: '2'}}}", false},
		"the installer":          {newInstaller, false},
		"labels":                 {"machine: {nodeLabels: {a: b}}", false},
		"the cluster's own part": {"cluster: {apiServer: {extraArgs: {v: '2'}}}", false},
		"a feature that is live": {"machine: {features: {kubePrism: {enabled: true, port: 7446}}}", false},
		"one that is not":        {"machine: {features: {diskQuotaSupport: false}}", true},
		"udev":                   {"machine: {udev: {rules: ['A']}}", true},
		"another document": {"apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: a\nurl: udp://10.0.0.1:1",
			false},
	} {
		down := len(l.down)
		dry, err := l.change(auto, true, c.patch)
		if err != nil || (dry.GetMode() == reboot) != c.restarts ||
			!strings.HasPrefix(dry.GetModeDetails(), "Dry run summary:\nApplied configuration with") ||
			!strings.Contains(dry.GetModeDetails(), "(skipped in dry-run).\nConfig diff:\n\n--- a\n"+
				"+++ b\n@@ ") {
			t.Errorf("%s: a dry run: %v, %v", name, dry, err)
		}
		for _, mode := range []machineapi.ApplyConfigurationRequest_Mode{noReboot, try} {
			_, err := l.change(mode, true, c.patch)
			if c.restarts {
				wantRefusal(t, err, codes.InvalidArgument,
					"this config change can't be applied in immediate mode\ndiff:\n--- a\n+++ b\n")
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := l.change(auto, false, c.patch); err != nil || (len(l.down) == down+1) != c.restarts {
			t.Errorf("%s: %v; down: %v", name, err, l.down)
		}
		l.clock.advance(3 * step)
		if again, err := l.change(auto, true, c.patch); err != nil || !strings.HasSuffix(
			again.GetModeDetails(), "Config diff:\n\nNo changes.") {
			t.Errorf("%s: it is in force now: %v, %v", name, again, err)
		}
		if _, err := l.change(auto, false); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(3 * step)
	}
}

func TestNothingIsAppliedBeforeTheRestartIsDone(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	answer, err := l.change(auto, false, files)
	if err != nil || answer.GetMode() != reboot || !strings.HasPrefix(answer.GetModeDetails(),
		"Applied configuration with a reboot: this config change can't be applied in immediate mode") {
		t.Fatalf("%v, %v", answer, err)
	}
	_, err = l.change(auto, false, sysctls)
	wantRefusal(t, err, codes.FailedPrecondition,
		"configuration was already applied and node is rebooting, cannot apply more")
	l.clock.advance(3 * step)
	if _, err := l.change(auto, false, files, sysctls); err != nil {
		t.Error(err)
	}
}

func TestAStagedConfigurationIsOnTheDiskAlone(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	if answer, err := l.change(staged, false, files); err != nil || answer.GetMode() != staged ||
		answer.GetModeDetails() != "Staged configuration to be applied after the next reboot" {
		t.Fatalf("%v, %v", answer, err)
	}
	if l.has(config.ActiveID, "/var/etc/a") || !l.has(config.PersistentID, "/var/etc/a") {
		t.Error("it is active, or not persistent")
	}
	if err := l.as(role.Admin, l.address(1)).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(3 * step)
	if !l.has(config.ActiveID, "/var/etc/a") {
		t.Error("after the restart it is not active")
	}
	if _, err := l.change(staged, false, files, sysctls); err != nil {
		t.Fatal(err)
	}
	if _, err := l.change(noReboot, false, files); err != nil {
		t.Fatal(err)
	}
	if l.has(config.PersistentID, "somaxconn") {
		t.Error("another configuration does not replace the staged one")
	}
}

func TestATriedConfigurationReturnsInTime(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	answer, err := l.change(try, false, sysctls)
	if err != nil || answer.GetMode() != try || answer.GetModeDetails() != "Applied configuration without a "+
		"reboot\nThe config is applied in 'try' mode and will be automatically reverted back in "+
		time.Duration(step).String() {
		t.Errorf("got %v, %v", answer, err)
	}
	if !l.has(config.ActiveID, "somaxconn") || l.has(config.PersistentID, "somaxconn") {
		t.Error("it is not active, or persistent")
	}
	l.clock.advance(step)
	if l.has(config.ActiveID, "somaxconn") || l.fleet.Stage(l.address(1)) != talos.Running {
		t.Error("it did not return")
	}
	for _, mode := range []machineapi.ApplyConfigurationRequest_Mode{try, noReboot} {
		if _, err := l.change(mode, false, sysctls); err != nil {
			t.Fatal(err)
		}
	}
	l.clock.advance(2 * step)
	if !l.has(config.ActiveID, "somaxconn") {
		t.Error("a configuration that was confirmed is gone")
	}
}

// Since 1.14, Talos restarts for no configuration, and refuses the mode that asks for it.
func TestNewerReleasesNeverRestartForAConfiguration(t *testing.T) {
	l := newLab(t)
	if err := l.fleet.Boot(talos.Machine{Address: l.address(1), Version: "v1.14.0"}); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	if err := l.apply(l.address(1), l.machineConfig(machine.TypeControlPlane)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	_, err := l.change(reboot, false, files)
	wantRefusal(t, err, codes.Unimplemented, "the REBOOT mode is not supported")
	if answer, err := l.change(auto, false, files); err != nil || answer.GetMode() != noReboot ||
		len(l.down) != 0 {
		t.Errorf("%v, %v; down: %v", answer, err, l.down)
	}
}

func TestAnotherNameOfTheAPIIsInItsCertificateAtOnce(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	if _, err := l.change(auto, false, "machine: {certSANs: [talos.example.org]}"); err != nil {
		t.Fatal(err)
	}
	if got := l.serverNames(l.address(1)); !strings.Contains(got, "talos.example.org") {
		t.Errorf("the certificate names %s", got)
	}
}
