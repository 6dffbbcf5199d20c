package talos_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

func (l *lab) bootID(address string) string {
	l.t.Helper()
	file, err := l.as(role.Admin, address).Read(within(l.t), "/proc/sys/kernel/random/boot_id")
	if err != nil {
		l.t.Fatal(err)
	}
	text, err := io.ReadAll(file)
	if err != nil || len(text) != 37 {
		l.t.Fatalf("boot id %q, %v", text, err)
	}
	return strings.TrimSpace(string(text))
}

func (l *lab) schematic(address string) (id string) {
	l.t.Helper()
	all, err := safe.StateListAll[*runtime.ExtensionStatus](within(l.t), l.as(role.Reader, address).COSI)
	if err != nil {
		l.t.Fatal(err)
	}
	for e := range all.All() {
		if e.TypedSpec().Metadata.Name == "schematic" {
			id = e.TypedSpec().Metadata.Version
		}
	}
	return id
}

func (l *lab) status(address string) runtime.MachineStatusSpec {
	l.t.Helper()
	status, err := safe.StateGetByID[*runtime.MachineStatus](within(l.t), l.as(role.Reader, address).COSI,
		runtime.MachineStatusID)
	if err != nil {
		l.t.Fatal(err)
	}
	return *status.TypedSpec()
}

func TestARebootStopsServicesFirstAndTheAPILater(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	cp := l.address(1)
	before, configured := l.bootID(cp), len(l.configured)
	if err := l.as(role.Operator, cp).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.down, []string{cp}) {
		t.Errorf("OnDown was called for %v", l.down)
	}
	if got := l.status(cp); got.Stage != runtime.MachineStageRebooting || !got.Status.Ready {
		t.Errorf("it is %+v: other stages than booting and running have no conditions", got)
	}
	if l.bootID(cp) != before {
		t.Error("the same system has another boot id")
	}
	l.clock.advance(step / 2)
	_, err := l.as(role.Admin, cp).Version(within(t))
	wantRefusal(t, err, codes.Unavailable, "connection refused")
	l.clock.advance(step)
	if l.bootID(cp) == before || len(l.configured) != configured {
		t.Error("its API is there with the former boot id, or its kubelet before its services")
	}
	l.clock.advance(step)
	if len(l.configured) != configured+1 {
		t.Errorf("OnMachineConfigured was called %d times", len(l.configured)-configured)
	}
	l.fleet.Halt(cp)
	if len(l.down) != 1 {
		t.Errorf("a power cut is a restart: %v", l.down)
	}
}

func TestAForcedRebootStopsNothing(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	if err := l.as(role.Admin, l.address(1)).Reboot(within(t), client.WithForce); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	if got := l.release(l.address(1)); got != "v1.13.0" {
		t.Errorf("after the time of a boot: %s", got)
	}
}

func TestReadHasTheBootIDAlone(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	read := func(r role.Role, path string) error {
		file, err := l.as(r, l.address(1)).Read(within(t), path)
		if err == nil {
			_, err = io.ReadAll(file)
		}
		return err
	}
	wantRefusal(t, read(role.Admin, "/etc/shadow"), codes.NotFound,
		"stat /etc/shadow: no such file or directory")
	wantRefusal(t, read(role.Reader, "/proc/sys/kernel/random/boot_id"), codes.PermissionDenied,
		"not authorized")
}

func (l *lab) oldUpgrade(address string, req *machineapi.UpgradeRequest) error {
	//lint:ignore SA1019 machines before v1.13 know no other call
	_, err := l.as(role.Admin, address).MachineClient.Upgrade(within(l.t), req)
	return err
}

func TestTheOldUpgradeChecksImageAndEtcd(t *testing.T) {
	l := newLab(t)
	l.raise(2, 1)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	wantRefusal(t, l.oldUpgrade(l.address(1), &machineapi.UpgradeRequest{Image: installer("latest")}),
		codes.Unknown, "error validating installer image")
	request := &machineapi.UpgradeRequest{Image: installer("v1.13.1")}
	wantRefusal(t, l.oldUpgrade(l.address(1), request), codes.Unknown, "error validating etcd for upgrade: "+
		"etcd member count(2) is insufficient to maintain quorum if upgrade commences")
	if err := l.oldUpgrade(l.address(3), request); err != nil {
		t.Errorf("a worker: %v", err)
	}
	preserved := &machineapi.UpgradeRequest{Image: installer("v1.13.1"), Preserve: true}
	if err := l.oldUpgrade(l.address(1), preserved); err != nil {
		t.Errorf("preserve skips the check: %v", err)
	}
	if got := l.status(l.address(1)); got.Stage != runtime.MachineStageUpgrading || len(l.down) != 2 {
		t.Errorf("it is %+v; down: %v", got, l.down)
	}
	if err := l.as(role.Admin, l.address(1)).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := l.status(l.address(1)); got.Stage != runtime.MachineStageUpgrading {
		t.Errorf("a reboot took over: %+v", got)
	}
	l.clock.advance(3 * step)
	for _, n := range []int{1, 3} {
		if got := l.release(l.address(n)); got != "v1.13.1" {
			t.Errorf("machine %d runs %s", n, got)
		}
	}
}

func TestAStagedUpgradeInstallsAtTheNextBoot(t *testing.T) {
	l := newLab(t)
	l.raise(0, 0)
	l.bootNew(1)
	l.clock.advance(step)
	if err := l.apply(l.address(1), l.machineConfig(machine.TypeControlPlane)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	if err := l.oldUpgrade(l.address(1), &machineapi.UpgradeRequest{Image: installer("v1.13.1"), Stage: true,
		Force: true}); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step/2 + step)
	if got := l.status(l.address(1)); got.Stage != runtime.MachineStageInstalling ||
		l.release(l.address(1)) != "v1.13.0" {
		t.Errorf("at its first boot it runs %s and is %s", l.release(l.address(1)), got.Stage)
	}
	l.clock.advance(3 * step)
	if got := l.release(l.address(1)); got != "v1.13.1" || l.fleet.Stage(l.address(1)) != talos.Running {
		t.Errorf("at its second boot it runs %s", got)
	}
}
