//go:build integration

package proxmox

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
)

func newPlatform(t *testing.T, d datacenter) root { return newRoot(t, d, module) }

// preflight runs castle's preflight before Terraform applies the module.
func (d datacenter) preflight(t *testing.T) gate.Inspection {
	t.Helper()
	c := &vmCheck{
		client: d.client(t), resource: defaultResource, tags: []string{"blue", "castle"}, node: "proxmox",
		ids:   map[string]int{"cp-01": 421, "cp-02": 422, "wk-01": 431},
		names: map[string]string{"cp-01": "blue-cp-01", "cp-02": "blue-cp-02", "wk-01": "blue-wk-01"},
		key:   "our key", derives: true, interval: 10 * time.Millisecond, timeout: time.Minute,
	}
	found, err := c.inspect(t.Context(), nil, silent)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (d datacenter) checkEmpty(t *testing.T) {
	t.Helper()
	d.server.Idle()
	if vms, disks := d.server.VMs(), d.server.Disks(); len(vms) > 0 || len(disks) > 0 {
		t.Errorf("left over: machines %v, volumes %v", vms, disks)
	}
}

func TestTheRealProviderCreatesAndDestroys(t *testing.T) {
	var mu sync.Mutex
	started := map[string]string{}
	d := newDatacenter(t, emulator.Config{Duration: 20 * time.Millisecond, OnStart: func(v emulator.VM) {
		mu.Lock()
		defer mu.Unlock()
		started[v.Name] = v.Address.String() + " " + v.Image
	}})
	r := newPlatform(t, d)
	r.must(apply...)
	mu.Lock()
	if got, want := started["blue-cp-02"], "127.10.0.22/24 blue-talos-v1.13.0.qcow2"; len(started) != 3 ||
		got != want {
		t.Errorf("started %v, want three machines, blue-cp-02 with %s", started, want)
	}
	mu.Unlock()
	for _, v := range d.server.VMs() {
		if !v.Running || !slices.Equal(v.Tags, []string{"blue", "castle"}) ||
			!strings.Contains(v.Config["scsi0"], "size=20G") ||
			!strings.Contains(v.Config["scsi1"], "size=50G") ||
			!strings.HasPrefix(v.ImageURL, "https://factory.talos.dev/") {
			t.Errorf("not as configured: %+v", v)
		}
	}
	if changes := r.plan(); len(changes) > 0 {
		t.Errorf("a second plan changes %v\n%s", changes, r.must("show", "-no-color", "plan"))
	}
	if found := d.preflight(t); len(found.Ours) != 3 || len(found.Foreign) != 0 {
		t.Errorf("with a lost state castle would not know its own: %+v", found)
	}
	r.must(destroy...)
	d.checkEmpty(t)
	for _, request := range d.server.Requests() {
		if request.Status == 501 {
			t.Errorf("the provider needs %s %s", request.Method, request.Path)
		}
	}
}

// The provider, not castle, behaves this way: without the preflight, it takes over a foreign machine and
// deletes it.
func TestTheRealProviderAdoptsAForeignMachine(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(emulator.VM{ID: 421, Name: "prod-database", Running: true, Config: map[string]string{
		"scsi0": "local-lvm:vm-421-disk-0,size=8G", "memory": "8192",
		"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
	}})
	found := d.preflight(t)
	if len(found.Foreign) != 1 ||
		found.Foreign[0].What != `VM 421 "prod-database" on node proxmox, running, no tags` {
		t.Errorf("the preflight says %+v", found)
	}
	r := newPlatform(t, d)
	r.must(apply...)
	if vm := d.server.VMs()[0]; vm.Name != "prod-database" || !strings.Contains(vm.Config["scsi0"],
		"size=20G") {
		t.Errorf("the provider no longer adopts: %+v; the preflight could be gentler", vm)
	}
	r.must(destroy...)
	for _, vm := range d.server.VMs() {
		t.Errorf("the provider spared %+v; the preflight could be gentler", vm)
	}
}

// A stopped machine that castle has created to reserve the id cannot be completed by the provider: it imports
// the image twice.
func TestTheRealProviderCannotCompleteAMachine(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	r := newPlatform(t, d)
	r.must(append(apply, "-target=proxmox_virtual_environment_download_file.image")...)
	d.server.AddVM(emulator.VM{ID: 421, Name: "blue-cp-01", Tags: []string{"blue", "castle"}})
	r.must("import", "-input=false", "-no-color", `proxmox_virtual_environment_vm.node["cp-01"]`,
		"proxmox/421")
	r.must(apply...)
	vm := d.server.VMs()[0]
	if vm.Config["unused0"] == "" || strings.Contains(vm.Config["scsi0"], "size=20G") {
		t.Errorf("the provider completes it now: %+v; an id could be reserved", vm)
	}
}

func TestMachinesOfAKilledRunAreImported(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	r := newPlatform(t, d)
	release := make(chan struct{})
	d.server.Fail(emulator.Fault{Method: "POST", Path: "nodes/proxmox/qemu", Times: 3, Hold: release})
	run := r.start(apply...)
	d.await(t, "nodes/proxmox/qemu", 3)
	run.kill()
	if state := r.must("state", "list"); strings.Contains(state, "_vm.") {
		t.Fatalf("the state has the machines after all:\n%s", state)
	}
	close(release) // the node finishes what it was told, whoever asked

	found := d.preflight(t)
	if len(found.Foreign) != 0 || len(found.Ours) != 3 {
		t.Fatalf("the preflight says %+v", found)
	}
	for _, own := range found.Ours {
		r.must("import", "-input=false", "-no-color", own.Import.Address, own.Import.ID)
	}
	for address, actions := range r.plan() {
		if !slices.Equal(actions, []string{"update"}) {
			t.Errorf("%s: %v\n%s", address, actions, r.must("show", "-no-color", "plan"))
		}
	}
	r.must(apply...)
	for _, v := range d.server.VMs() {
		if !v.Running || !strings.Contains(v.Config["scsi0"], "size=20G") {
			t.Errorf("not completed: %+v", v)
		}
	}
	if changes := r.plan(); len(changes) > 0 {
		t.Errorf("afterwards a plan changes %v\n%s", changes, r.must("show", "-no-color", "plan"))
	}
	r.must(destroy...)
	d.checkEmpty(t)
}

// After an interrupt of Terraform the provider completes a create, so one Ctrl-C loses no machine.
func TestMachinesOfAnInterruptedRunAreInTheState(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	r := newPlatform(t, d)
	release := make(chan struct{})
	d.server.Fail(emulator.Fault{Method: "POST", Path: "nodes/proxmox/qemu", Times: 3, Hold: release})
	run := r.start(apply...)
	d.await(t, "nodes/proxmox/qemu", 3)
	run.interrupt()
	close(release)
	if err := run.wait(); err == nil {
		t.Error("an interrupted run ended as a success")
	}
	if state := r.must("state", "list"); strings.Count(state, "_vm.node") != 3 {
		t.Errorf("the state has only\n%s", state)
	}
	if changes := r.plan(); len(changes) > 0 {
		t.Errorf("afterwards a plan changes %v\n%s", changes, r.must("show", "-no-color", "plan"))
	}
	r.must(destroy...)
	d.checkEmpty(t)
}

func TestImportOfACompleteMachineDoesNotRestartIt(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	r := newPlatform(t, d)
	r.must(apply...)
	r.must("state", "rm", "proxmox_virtual_environment_vm.node")
	for _, own := range d.preflight(t).Ours {
		r.must("import", "-input=false", "-no-color", own.Import.Address, own.Import.ID)
	}
	before := len(d.server.Requests())
	r.must(apply...)
	for _, request := range d.server.Requests()[before:] {
		if strings.Contains(request.Path, "/status/") && request.Method != "GET" {
			t.Errorf("%s %s", request.Method, request.Path)
		}
	}
	if changes := r.plan(); len(changes) > 0 {
		t.Errorf("afterwards a plan changes %v", changes)
	}
}

func TestAnImageThatIsAlreadyThereIsDownloadedAgain(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddDisk(image())
	r := newPlatform(t, d)
	r.must(apply...)
	r.must(destroy...)
	d.checkEmpty(t)
}

// With reboot_after_update = false the provider changes running machines and leaves the restart to others.
// It refuses only to grow a disk together with a change that needs a restart, so the two are made one after
// the other.
func TestChangesAreMadeWithoutARestart(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	r := newPlatform(t, d)
	r.must(apply...)
	before := len(d.server.Requests())
	changed := module
	for _, change := range [][]string{{"size         = 50", "size         = 60"},
		{"cores = 4", "cores = 6", `"castle"]`, `"castle", "prod"]`}} {
		changed = strings.NewReplacer(change...).Replace(changed)
		r.write(changed)
		r.must(apply...)
		if changes := r.plan(); len(changes) > 0 {
			t.Errorf("after %q a plan changes %v\n%s", change, changes, r.must("show", "-no-color", "plan"))
		}
	}
	// Without CPU hotplug, Proxmox keeps the number of cores until the machine is started the next time.
	for _, v := range d.server.VMs() {
		if !strings.HasSuffix(v.Config["scsi1"], "size=60G,ssd=0") || v.Pending["cores"] != "6" ||
			v.Config["tags"] != "blue;castle;prod" {
			t.Errorf("not changed: %+v", v)
		}
	}
	for _, request := range d.server.Requests()[before:] {
		if request.Method == "POST" {
			t.Errorf("%s %s", request.Method, request.Path)
		}
	}
}
