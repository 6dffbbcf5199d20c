package proxmox

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/guest"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
)

// twoNodes has a guest 421 on pve1, with a disk that only its node has and one on a shared storage.
func twoNodes(t *testing.T, running bool) node {
	n := listen(t, Config{Nodes: []string{"pve1", "pve2"}, Storages: []Storage{
		{ID: "local", Type: "dir", Content: []string{"backup", "import"}, Path: "/var/lib/vz"},
		{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}},
		{ID: "nfs", Type: "nfs", Content: []string{"images", "import"}, Path: "/mnt/pve/nfs", Shared: true},
	}})
	n.server.AddVM(VM{ID: 421, Name: "blue-cp-01", Tags: []string{"blue", "castle"}, Running: running,
		Config: map[string]string{"scsi0": "local-lvm:vm-421-disk-0,size=8G",
			"scsi1": "nfs:421/vm-421-disk-0.raw,size=50G", "ide2": "local-lvm:vm-421-cloudinit,media=cdrom",
			"smbios1": "uuid=11111111-2222-4333-8444-555555555555", "net0": "virtio=BC:24:11:00:00:01"}})
	return n
}

func disksOn(s *Server) (all []string) {
	for _, d := range s.Disks() {
		all = append(all, d.Node+" "+d.Volume)
	}
	return all
}

func TestMigrationMovesTheGuestAndItsLocalDisks(t *testing.T) {
	n := twoNodes(t, true)
	n.server.AddDisk(Disk{Node: "pve2", Volume: "local-lvm:vm-421-disk-0", Owner: 421}) // a leftover
	const call = "nodes/pve1/qemu/421/migrate"
	for form, want := range map[string]string{
		"":            "target: property is missing and it is not optional",
		"target=pve1": "target: target is local node.",
		"target=pve9": "no such cluster node 'pve9'",
		"target=pve2": "can't migrate running VM without --online",
	} {
		a := n.send("POST", call, form)
		if got := a.reason + " target: " + a.errors["target"]; a.code < 400 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", form, a.code, got)
		}
	}
	exit, log := n.task("POST", call, "target=pve2&online=1")
	if exit != "migration aborted" || !strings.Contains(log[0], "can't live migrate attached local disks") {
		t.Errorf("without with-local-disks: %s, %q", exit, log)
	}
	release := make(chan struct{})
	n.server.Fail(Fault{Method: "POST", Path: "nodes/*/qemu/421/migrate", Hold: release})
	n.send("POST", call, "target=pve2&online=1&with-local-disks=1")
	if a := n.send("GET", "nodes/pve1/qemu/421/config", ""); a.data.(map[string]any)["lock"] != "migrate" {
		t.Errorf("while it moves: %v", a.data)
	}
	close(release)
	n.server.Idle()
	if a := n.send("GET", "nodes/pve1/qemu/421/config",
		""); a.reason != "Configuration file 'nodes/pve1/qemu-server/421.conf' does not exist" {
		t.Errorf("on the old node: %d %s", a.code, a.reason)
	}
	vm := n.server.VMs()[0]
	if vm.Node != "pve2" || !vm.Running || vm.Lock != "" ||
		vm.Config["scsi0"] != "local-lvm:vm-421-disk-1,size=8G" {
		t.Errorf("on the new node: %+v", vm)
	}
	want := []string{"pve1 nfs:421/vm-421-disk-0.raw", "pve2 local-lvm:vm-421-cloudinit",
		"pve2 local-lvm:vm-421-disk-0", "pve2 local-lvm:vm-421-disk-1"}
	if got := disksOn(n.server); !slices.Equal(got, want) {
		t.Errorf("disks %q", got)
	}
	n.token = n.limited()
	if a := n.send("POST", "nodes/pve2/qemu/421/migrate",
		"target=pve1"); a.reason != "Permission check failed (/vms/421, VM.Migrate)" {
		t.Errorf("without the privilege: %d %s", a.code, a.reason)
	}
}

func TestALockedGuestDoesNotMoveAndAStackMovesItsOwn(t *testing.T) {
	n := twoNodes(t, true)
	const call, online = "nodes/pve1/qemu/421/migrate", "target=pve2&online=1"
	n.server.SetLock(421, "backup")
	if a := n.send("POST", call, online); a.reason != "VM is locked (backup)" {
		t.Errorf("locked: %d %s", a.code, a.reason)
	}
	n.server.SetLock(421, "")
	n.server.with(421, func(g *guest.Guest) { g.HA = true })
	if upid, _ := n.send("POST", call, online).data.(string); !strings.Contains(upid, ":hamigrate:421:") {
		t.Errorf("task %s", upid)
	}
	n.server.Idle()
	if vm := n.server.VMs()[0]; vm.Node != "pve2" {
		t.Errorf("the stack did not move it: %+v", vm)
	}
}

func TestASharedStorageHasOneVolumeForAllNodes(t *testing.T) {
	n := twoNodes(t, false)
	const form = "content=import&filename=talos.qcow2&url=https://factory.talos.dev/a"
	if exit, _ := n.task("POST", "nodes/pve1/storage/nfs/download-url", form); exit != "OK" {
		t.Fatal(exit)
	}
	if exit, _ := n.task("POST", "nodes/pve2/storage/nfs/download-url",
		form); exit != "refusing to override existing file '/mnt/pve/nfs/import/talos.qcow2'" {
		t.Errorf("the second node: %s", exit)
	}
	for _, row := range n.send("GET", "nodes/pve2/storage", "").data.([]any) {
		one := row.(map[string]any)
		if want := float64(option.Number(one["storage"] == "nfs")); one["shared"] != want {
			t.Errorf("storage %v: shared %v", one["storage"], one["shared"])
		}
	}
	n.task("DELETE", "nodes/pve2/storage/nfs/content/import/talos.qcow2", "")
	rows := n.send("GET", "nodes/pve1/storage/nfs/content?content=import", "").data.([]any)
	if len(rows) != 0 {
		t.Errorf("what one node deletes is gone on the other: %v", rows)
	}
}

func TestARestoredBackupHasTheIdentityOfItsMachine(t *testing.T) {
	n := twoNodes(t, true)
	if exit, _ := n.task("POST", "nodes/pve1/vzdump", "vmid=421&storage=local&mode=snapshot"); exit != "OK" {
		t.Fatal(exit)
	}
	archive := ""
	for _, d := range n.server.Disks() {
		if d.Content == "backup" {
			archive = d.Volume
		}
	}
	restore := func(form string) string {
		exit, _ := n.task("POST", "nodes/pve1/qemu", form+"&archive="+url.QueryEscape(archive))
		return exit
	}
	over := n.send("POST", "nodes/pve1/qemu", "vmid=421&archive="+url.QueryEscape(archive))
	if over.reason != "unable to restore VM 421 - VM 421 already exists on node 'pve1'" {
		t.Errorf("over an existing machine: %d %s", over.code, over.reason)
	}
	if a, b := restore("vmid=422"), restore("vmid=423&unique=1"); a != "OK" || b != "OK" {
		t.Fatal(a, b)
	}
	all := n.server.VMs()
	was, copied, other := all[0].Config, all[1].Config, all[2].Config
	if copied["name"] != "blue-cp-01" || copied["tags"] != "blue;castle" || all[1].Running ||
		copied["smbios1"] != was["smbios1"] || copied["net0"] != was["net0"] ||
		copied["scsi0"] != "local-lvm:vm-422-disk-0,size=8G" {
		t.Errorf("restored: %v", copied)
	}
	if other["smbios1"] == was["smbios1"] || other["net0"] == was["net0"] {
		t.Errorf("with unique: %v", other)
	}
	n.token = n.limited()
	a := n.send("POST", "nodes/pve1/vzdump", "vmid=421&storage=local")
	if a.reason != "Permission check failed (/storage/local, Datastore.AllocateSpace)" {
		t.Errorf("without the privilege: %d %s", a.code, a.reason)
	}
}
