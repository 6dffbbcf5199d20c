package proxmox

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// waiting is the machine 421, which runs and waits for more memory.
func waiting() (platform.Object, emulator.VM) {
	k, vm := asLeft()
	vm.Running, vm.Config["memory"] = true, "4096"
	vm.Pending = map[string]string{"memory": "8192"}
	return values.MachineOf(k), vm
}

// restart has castle restart a machine, and returns what it says.
func (d datacenter) restart(ctx context.Context, t *testing.T, m platform.Object) (told []string, err error) {
	t.Helper()
	s := Search{Client: d.client(t), Interval: time.Millisecond, Timeout: time.Second}
	err = s.Restart(ctx, m, func(text string) { told = append(told, text) })
	return told, err
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

const (
	status421 = "nodes/proxmox/qemu/421/status/"
	reboot421 = "POST " + status421 + "reboot"
	stop421   = "POST " + status421 + "stop"
	start421  = "POST " + status421 + "start"
)

func TestRestartBringsPendingChangesIntoForce(t *testing.T) {
	const off, starts, deaf = "shuts down", "starts", "does not shut down within 5m0s; castle stops it"
	for name, test := range map[string]struct {
		vm         func(*emulator.VM)
		fault      emulator.Fault
		says, sent []string
	}{
		"a machine that runs": {func(*emulator.VM) {}, emulator.Fault{},
			[]string{off, starts}, []string{reboot421}},
		"a machine that is off": {func(v *emulator.VM) { v.Running = false }, emulator.Fault{},
			[]string{starts}, []string{start421}},
		"a machine that ignores the shutdown": {func(v *emulator.VM) { v.Deaf = true }, emulator.Fault{},
			[]string{off, deaf, starts}, []string{reboot421, stop421, start421}},
		"a protected machine": {func(v *emulator.VM) { v.Protection = true }, emulator.Fault{},
			[]string{off, starts}, []string{reboot421}},
		"a highly available machine": {func(v *emulator.VM) { v.HA = true }, emulator.Fault{},
			[]string{off, starts}, []string{reboot421}},
		"a highly available machine that ignores it": {func(v *emulator.VM) { v.HA, v.Deaf = true, true },
			emulator.Fault{}, []string{off, deaf, starts}, []string{reboot421, stop421, start421}},
		"a machine that has moved": {func(v *emulator.VM) { v.Node = "pve2" }, emulator.Fault{},
			[]string{off, starts}, []string{strings.ReplaceAll(reboot421, "/proxmox/", "/pve2/")}},
		"a machine that Proxmox starts at the same time": {func(v *emulator.VM) { v.Running = false },
			emulator.Fault{Path: status421 + "start", Times: 1, Before: func() *emulator.VM {
				_, vm := waiting()
				vm.Pending, vm.Config["memory"] = nil, "8192"
				return &vm
			}()}, []string{starts}, []string{start421}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"},
				Patience: time.Millisecond})
			m, vm := waiting()
			test.vm(&vm)
			d.server.AddVM(vm)
			if test.fault.Path != "" {
				d.server.Fail(test.fault)
			}
			told, err := d.restart(soon(t), t, m)
			for i, text := range test.says {
				test.says[i] = "VM 421 " + text
			}
			if err != nil || !slices.Equal(told, test.says) {
				t.Errorf("%v, %q", err, told)
			}
			if got := changes(d); !slices.Equal(got, test.sent) {
				t.Errorf("requests %q, want %q", got, test.sent)
			}
			d.checkRuns(t)
		})
	}
}

func TestRestartRefusesWithTheReason(t *testing.T) {
	for name, test := range map[string]struct {
		vm    func(*emulator.VM)
		fault emulator.Fault
		want  string
	}{
		"another machine": {func(v *emulator.VM) { v.Config["smbios1"] = "uuid=other" }, emulator.Fault{},
			`is not castle's machine but VM 421 "blue-cp-01" on node proxmox: expected the uuid `},
		"a container": {func(v *emulator.VM) { v.Kind = "lxc" }, emulator.Fault{},
			"is another guest: container 421"},
		"an invisible machine": {func(v *emulator.VM) { v.Hidden = true }, emulator.Fault{},
			"is invisible to this API token; give the token VM.Audit on /vms/421"},
		"none": {func(v *emulator.VM) { v.ID = 422 }, emulator.Fault{}, "does not exist any more"},
		"a backup": {func(v *emulator.VM) { v.Lock = "backup" }, emulator.Fault{},
			"is locked (backup), and castle does not restart it; when what has locked it (backup) has " +
				"ended, run the same command again"},
		"a machine that is suspended to disk": {
			func(v *emulator.VM) { v.Running, v.Lock = false, "suspended" }, emulator.Fault{},
			"is locked (suspended), and castle does not restart it; resume it first"},
		"a task that fails": {func(*emulator.VM) {},
			emulator.Fault{Path: status421 + "reboot", Task: "can't lock file '/var/lock/lock-421.conf'"},
			"VM 421: task UPID:proxmox:"},
		"a start that fails": {func(v *emulator.VM) { v.Running = false },
			emulator.Fault{Path: status421 + "start", Task: "start failed: QEMU exited with code 1"},
			"start: task UPID:proxmox:"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{})
			m, vm := waiting()
			test.vm(&vm)
			d.server.AddVM(vm)
			if test.fault.Path != "" {
				d.server.Fail(test.fault)
			}
			_, err := d.restart(soon(t), t, m)
			if err == nil || !strings.HasPrefix(err.Error(), "VM 421: ") ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if got := changes(d); len(got) > 0 && test.fault.Path == "" || len(got) > 1 {
				t.Errorf("touched: %q", got)
			}
		})
	}
}

// A state without a uuid and without hardware addresses proves nothing, whatever the name is.
func TestRestartNeedsAProof(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	m, vm := waiting()
	d.server.AddVM(vm)
	m.UUID, m.MACs = "", nil
	if _, err := d.restart(soon(t), t, m); err == nil || len(changes(d)) > 0 {
		t.Errorf("%v, %q", err, changes(d))
	}
}

func TestRestartNamesThePrivilegeThatIsMissing(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	m, vm := waiting()
	d.server.AddVM(vm)
	d.limit(t, "pveum role add Look --privs VM.Audit",
		"pveum acl modify /vms --users castle@pve --roles Look")
	_, err := d.restart(soon(t), t, m)
	if err == nil || !strings.HasSuffix(err.Error(), "403 Permission check failed (/vms/421, VM.PowerMgmt)") {
		t.Error(err)
	}
}

// The next call waits for the reboot that a killed castle has asked for, and sends no other.
func TestRestartCompletesARebootThatHasBegun(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	m, vm := waiting()
	d.server.AddVM(vm)
	hold := make(chan struct{})
	d.server.Fail(emulator.Fault{Method: "POST", Path: status421 + "reboot", Hold: hold})
	if _, err := d.client(t).session.Call(t.Context(), http.MethodPost, status421+"reboot", nil); err != nil {
		t.Fatal(err)
	}
	told := []string{}
	s := Search{Client: d.client(t), Interval: time.Millisecond, Timeout: time.Second}
	err := s.Restart(soon(t), m, func(text string) {
		if told = append(told, text); len(told) == 1 {
			close(hold)
		}
	})
	want := []string{"VM 421 waits for Proxmox' task qmreboot", "VM 421 starts"}
	if err != nil || !slices.Equal(told, want) {
		t.Errorf("%v, %q", err, told)
	}
	if got := changes(d); !slices.Equal(got, []string{reboot421}) {
		t.Errorf("requests %q", got)
	}
	d.checkRuns(t)
}

// Nothing but a kill keeps castle from starting a machine that it has stopped.
func TestRestartStartsWhatItHasStopped(t *testing.T) {
	ctx, interrupt := context.WithCancel(soon(t))
	d := newDatacenter(t, emulator.Config{Patience: time.Millisecond,
		OnStop: func(emulator.VM) { interrupt() }})
	m, vm := waiting()
	vm.Deaf = true
	d.server.AddVM(vm)
	if _, err := d.restart(ctx, t, m); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	d.checkRuns(t)
}

func TestRestartNamesWhatProxmoxHasNotApplied(t *testing.T) {
	var d datacenter
	m, vm := waiting()
	d = newDatacenter(t, emulator.Config{OnStart: func(v emulator.VM) {
		v.Pending = map[string]string{"scsi2": "local-lvm:1"}
		d.server.AddVM(v)
	}})
	d.server.AddVM(vm)
	_, err := d.restart(soon(t), t, m)
	const want = "VM 421: has restarted, and Proxmox has not applied scsi2 none → local-lvm:1; " +
		"the log of its last start on node proxmox says why"
	if err == nil || err.Error() != want {
		t.Error(err)
	}
}
