package talos_test

import (
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// release is the Talos that a machine says it runs.
func (l *lab) release(address string) string {
	l.t.Helper()
	v, err := l.as(role.Reader, address).Version(l.t.Context())
	if err != nil {
		return err.Error()
	}
	return v.GetMessages()[0].GetVersion().GetTag()
}

const (
	newInstaller = `{"machine": {"install": {"image": "factory.talos.dev/nocloud-installer/abc:v1.13.1"}}}`
	newKubelet   = `{"machine": {"kubelet": {"image": "ghcr.io/siderolabs/kubelet:v1.36.4"}}}`
	newAPIServer = `{"cluster": {"apiServer": {"image": "registry.k8s.io/kube-apiserver:v1.36.4"}}}`
)

// As with Talos, a configuration names an installer that the machine runs only after an upgrade, and a
// kubelet and an API server that it starts at once.
func TestMachinesKeepTheTalosThatTheyWereInstalledWith(t *testing.T) {
	l := newLab(t)
	for n, version := range []string{"v1.12.4", ""} {
		if err := l.fleet.Boot(talos.Machine{Address: l.address(n), Version: version}); err != nil {
			t.Fatal(err)
		}
	}
	image, iso := l.address(0), l.address(1)
	l.clock.advance(step)
	for _, address := range []string{image, iso} {
		if err := l.apply(address, l.machineConfig(machine.TypeControlPlane, newInstaller)); err != nil {
			t.Fatal(err)
		}
	}
	l.clock.advance(3 * step)
	if got := l.release(image); got != "v1.12.4" {
		t.Errorf("the machine with an image runs %s", got)
	}
	if got := l.release(iso); got != "v1.13.1" {
		t.Errorf("the machine that an ISO installed runs %s", got)
	}
	configured := len(l.configured)
	if _, err := l.as(role.Admin, iso).ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
		Mode: machineapi.ApplyConfigurationRequest_AUTO,
		Data: l.machineConfig(machine.TypeControlPlane, newKubelet, newAPIServer)}); err != nil {
		t.Fatal(err)
	}
	if len(l.configured) != configured+1 || l.configured[configured].KubernetesVersion != "v1.36.4" ||
		l.configured[configured].APIServerVersion != "v1.36.4" ||
		l.configured[configured].TalosVersion != "v1.13.1" {
		t.Errorf("another kubelet's image: %+v", l.configured[configured:])
	}

	//lint:ignore SA1019 talosctl calls it for machines before v1.13, and they still know it
	if _, err := l.as(role.Admin, image).MachineClient.Upgrade(t.Context(), &machineapi.UpgradeRequest{
		Image: "factory.talos.dev/nocloud-installer/abc:v1.13.0", Force: true}); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	if got := l.release(image); got != "v1.13.0" {
		t.Errorf("after its upgrade it runs %s", got)
	}
	l.fleet.Remove(image)
	if err := l.fleet.Boot(talos.Machine{Address: image, Version: "v1.13.2"}); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	v, err := l.anyone(image).Version(t.Context())
	if err != nil || v.GetMessages()[0].GetVersion().GetTag() != "v1.13.2" {
		t.Errorf("a new disk: %v, %v", v, err)
	}
}
