package proxmox

import (
	"maps"
	"slices"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// waiting is the machine 421, which runs and waits for more memory.
func waiting() (platform.Object, emulator.VM) {
	k, vm := asLeft()
	vm.Running, vm.Config["memory"] = true, "4096"
	vm.Pending = map[string]string{"memory": "8192"}
	return machineOf(k), vm
}

// restart has castle restart a machine, and returns what it says.
func (d datacenter) restart(t *testing.T, m platform.Object) (said []string, err error) {
	t.Helper()
	s := Search{Client: d.client(t), Interval: time.Millisecond, Timeout: time.Minute}
	err = s.Restart(soon(t), m, func(text string) { said = append(said, text) })
	return said, err
}

// checkRuns checks that the machine 421 runs with its new memory.
func (d datacenter) checkRuns(t *testing.T) {
	t.Helper()
	vm := d.server.VMs()[0]
	if !vm.Running || len(vm.Pending) > 0 || vm.Config["memory"] != "8192" {
		t.Errorf("running %v, %s MB, pending %q", vm.Running, vm.Config["memory"],
			slices.Sorted(maps.Keys(vm.Pending)))
	}
}

func TestRestartBringsPendingChangesIntoForce(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	m, vm := waiting()
	d.server.AddVM(vm)
	said, err := d.restart(t, m)
	if want := []string{"VM 421 shuts down", "VM 421 starts"}; err != nil || !slices.Equal(said, want) {
		t.Errorf("%v, %q", err, said)
	}
	d.checkRuns(t)
	if want := []string{"POST nodes/proxmox/qemu/421/status/reboot"}; !slices.Equal(changes(d), want) {
		t.Errorf("requests %q", changes(d))
	}
}
