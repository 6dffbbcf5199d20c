package proxmox

import (
	"slices"
	"testing"
	"time"
)

// kinds lists the tasks of the node with their users and exits, the oldest first.
func (n node) kinds() (all []string) {
	n.t.Helper()
	n.server.Idle()
	for _, row := range slices.Backward(n.send("GET", "nodes/proxmox/tasks", "").data.([]any)) {
		row := row.(map[string]any)
		all = append(all, row["type"].(string)+" "+row["user"].(string)+" "+row["status"].(string))
	}
	return all
}

// on is a datacenter with the VM 421, which runs and waits for more memory, and what its hooks get.
func on(t *testing.T, change func(*VM)) (n node, events *[]string) {
	t.Helper()
	events = &[]string{}
	hook := func(what string) func(VM) {
		return func(v VM) { *events = append(*events, what+" "+v.Config["memory"]) }
	}
	n = listen(t, Config{Patience: time.Millisecond, OnShutdown: hook("acpi"), OnStop: hook("stop"),
		OnStart: hook("start")})
	vm := VM{ID: 421, Running: true, Config: map[string]string{"memory": "4096"},
		Pending: map[string]string{"memory": "8192"}}
	change(&vm)
	n.server.AddVM(vm)
	return n, events
}

func TestRebootAppliesWhatIsPendingAndTheNodeStartsTheVM(t *testing.T) {
	n, events := on(t, func(*VM) {})
	if exit, _ := n.task("POST", running421+"/status/reboot", "timeout=300"); exit != "OK" {
		t.Fatal(exit)
	}
	want := []string{"qmreboot castle@pve!castle OK", "qmstart root@pam OK"}
	if got := n.kinds(); !slices.Equal(got, want) {
		t.Errorf("tasks %q", got)
	}
	if want := []string{"acpi 4096", "stop 4096", "start 8192"}; !slices.Equal(*events, want) {
		t.Errorf("hooks %q", *events)
	}
	if vm := n.server.VMs()[0]; !vm.Running || len(vm.Pending) > 0 {
		t.Errorf("%+v", vm)
	}
}

func TestPowerOfAGuestThatIsOffDeafOrLocked(t *testing.T) {
	const timeout = "VM quit/powerdown failed - got timeout"
	for name, test := range map[string]struct {
		vm         func(*VM)
		verb, form string
		reason     string   // of a call that starts no task
		tasks      []string // their kinds, users and exits
		runs       bool
	}{
		"a reboot of one that is off": {func(v *VM) { v.Running = false }, "reboot", "",
			"VM 421 not running", nil, false},
		"a shutdown of one that is off": {func(v *VM) { v.Running = false }, "shutdown", "",
			"", []string{"qmshutdown castle@pve!castle OK"}, false},
		"a reboot of a deaf one": {func(v *VM) { v.Deaf = true }, "reboot", "timeout=300",
			"", []string{"qmreboot castle@pve!castle " + timeout}, true},
		"a shutdown of a deaf one": {func(v *VM) { v.Deaf = true }, "shutdown", "",
			"", []string{"qmshutdown castle@pve!castle " + timeout}, true},
		"a forced shutdown of a deaf one": {func(v *VM) { v.Deaf = true }, "shutdown", "forceStop=1",
			"", []string{"qmshutdown castle@pve!castle OK"}, false},
		"a stop of a deaf one": {func(v *VM) { v.Deaf = true }, "stop", "",
			"", []string{"qmstop castle@pve!castle OK"}, false},
		"a reboot during a backup": {func(v *VM) { v.Lock = "backup" }, "reboot", "",
			"", []string{"qmreboot castle@pve!castle VM is locked (backup)"}, true},
		"a reboot past high availability": {func(v *VM) { v.HA = true }, "reboot", "",
			"", []string{"qmreboot castle@pve!castle OK", "qmstart root@pam OK"}, true},
		"a shutdown by high availability": {func(v *VM) { v.HA = true }, "shutdown", "",
			"", []string{"qmshutdown root@pam OK", "hastop castle@pve!castle OK"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := on(t, test.vm)
			a := n.send("POST", running421+"/status/"+test.verb, test.form)
			if test.reason != "" {
				if a.code != 500 || a.reason != test.reason {
					t.Errorf("%d %s", a.code, a.reason)
				}
			}
			if got := n.kinds(); !slices.Equal(got, test.tasks) {
				t.Errorf("tasks %q, want %q", got, test.tasks)
			}
			if vm := n.server.VMs()[0]; vm.Running != test.runs {
				t.Errorf("running %v, want %v", vm.Running, test.runs)
			}
		})
	}
}

// A call's own timeout counts where the configuration has none, and a minute without one.
func TestADeafGuestIsWaitedForAsLongAsTheCallSays(t *testing.T) {
	n := listen(t, Config{})
	n.server.AddVM(VM{ID: 421, Running: true, Deaf: true})
	if exit, _ := n.task("POST", running421+"/status/reboot",
		"timeout=0"); exit != "VM quit/powerdown failed - got timeout" {
		t.Error(exit)
	}
	n.server.SetDeaf(421, false)
	if exit, _ := n.task("POST", running421+"/status/reboot", "timeout=0"); exit != "OK" {
		t.Error(exit)
	}
}
