package proxmox

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// snapped is a datacenter with VM 421, its disks on LVM-thin, and a snapshot of them and of its memory.
func snapped(t *testing.T) node {
	t.Helper()
	n := listen(t, Config{Nodes: []string{"proxmox", "pve2"}})
	n.server.AddVM(VM{ID: 421, Running: true, Config: map[string]string{
		"memory": "1024", "description": "mine",
		"scsi0": "local-lvm:vm-421-disk-0,size=8G", "scsi1": "local-lvm:vm-421-disk-1,size=40G",
		"ide2": "local-lvm:vm-421-cloudinit,media=cdrom"}})
	if exit := n.exit("POST", "nodes/proxmox/qemu/421/snapshot", "snapname=before&vmstate=1"); exit != "OK" {
		t.Fatal(exit)
	}
	return n
}

// exit is how the task of a call ends; the refusal of a call that has none.
func (n node) exit(method, path, form string) string {
	n.t.Helper()
	a := n.send(method, path, form)
	if a.code != 200 {
		return a.reason
	}
	n.server.Idle()
	newest := n.send("GET", "nodes/proxmox/tasks", "").data.([]any)[0].(map[string]any)
	return newest["status"].(string)
}

func (n node) volumes(id int) (all []string) {
	for _, d := range n.server.Disks() {
		if d.Owner == id {
			all = append(all, d.Volume)
		}
	}
	return all
}

func TestASnapshotIsListedWithItsMemory(t *testing.T) {
	n := snapped(t)
	list := n.send("GET", "nodes/proxmox/qemu/421/snapshot", "").body
	for _, want := range []string{`"name":"before"`, `"vmstate":1`, `"name":"current"`, `"parent":"before"`,
		`"running":1`} {
		if !strings.Contains(list, want) {
			t.Errorf("%s lacks %s", list, want)
		}
	}
	if config := n.vm(421).Config; config["parent"] != "before" || config["lock"] != "" {
		t.Errorf("%v", config)
	}
	was := n.send("GET", "nodes/proxmox/qemu/421/snapshot/before/config", "").body
	if !strings.Contains(was, `"vmstate":"local-lvm:vm-421-state-before"`) || strings.Contains(was, "mine") {
		t.Error(was)
	}
}

func TestASnapshotInCreationLocksItsGuest(t *testing.T) {
	n := listen(t, Config{Durations: map[string]time.Duration{"qmsnapshot": time.Hour}})
	n.server.AddVM(VM{ID: 421, Config: map[string]string{"scsi0": "local-lvm:vm-421-disk-0,size=8G"}})
	n.send("POST", "nodes/proxmox/qemu/421/snapshot", "snapname=before")
	if list := n.send("GET", "nodes/proxmox/qemu/421/snapshot", "").body; n.vm(421).Lock != "snapshot" ||
		!strings.Contains(list, `"snapstate":"prepare"`) {
		t.Errorf("lock %q: %s", n.vm(421).Lock, list)
	}
	if a := n.send("PUT", "nodes/proxmox/qemu/421/config", "cores=2"); a.reason != "VM is locked (snapshot)" {
		t.Error(a.reason)
	}
}

func TestWhatASnapshotRefuses(t *testing.T) {
	const path = "nodes/proxmox/qemu/421/"
	for name, test := range map[string]struct{ method, path, form, reason string }{
		"the same name": {"POST", "snapshot", "snapname=before", "snapshot name 'before' already used"},
		"a reserved name": {"POST", "snapshot", "snapname=current",
			"unable to use snapshot name 'current' (reserved name)"},
		"none of it": {"DELETE", "snapshot/after", "", "snapshot 'after' does not exist"},
		"its disk deleted": {"PUT", "config", "delete=scsi1&force=1",
			"unable to delete 'local-lvm:vm-421-disk-1' - volume is still in use (snapshot?)"},
		"to move while it runs": {"POST", "migrate", "target=pve2&online=1&with-local-disks=1",
			"migration aborted"},
	} {
		t.Run(name, func(t *testing.T) {
			if exit := snapped(t).exit(test.method, path+test.path, test.form); exit != test.reason {
				t.Errorf("%q", exit)
			}
		})
	}
	n := listen(t, Config{Nodes: []string{"proxmox", "pve2"}})
	n.server.AddVM(VM{ID: 421, Config: map[string]string{"scsi0": "local:421/vm-421-disk-0.raw,size=8G"}})
	exit := n.exit("POST", path+"snapshot", "snapname=before")
	if exit != "snapshot feature is not available" {
		t.Errorf("of a raw file: %q", exit)
	}
	n.token = n.limited("pveum role add Look --privs VM.Audit",
		"pveum acl modify / --users limited@pve --roles Look")
	if a := n.send("POST", path+"snapshot", "snapname=before"); a.code != 403 {
		t.Errorf("without VM.Snapshot: %d %s", a.code, a.reason)
	}
}

// A detached disk that a snapshot has cannot be deleted; without the snapshot it can.
func TestAnUnusedDiskGoesAfterItsSnapshot(t *testing.T) {
	n := snapped(t)
	const config = "nodes/proxmox/qemu/421/config"
	n.send("PUT", config, "delete=scsi1")
	if a := n.send("PUT", config, "delete=unused0"); !strings.Contains(a.reason, "still in use (snapshot?)") {
		t.Error(a.reason)
	}
	if exit := n.exit("DELETE", "nodes/proxmox/qemu/421/snapshot/before", ""); exit != "OK" {
		t.Fatal(exit)
	}
	if a := n.send("PUT", config, "delete=unused0"); a.code != 200 || n.vm(421).Config["parent"] != "" {
		t.Errorf("%q, parent %q", a.reason, n.vm(421).Config["parent"])
	}
	if got := n.volumes(421); slices.Contains(got, "local-lvm:vm-421-state-before") ||
		slices.Contains(got, "local-lvm:vm-421-disk-1") {
		t.Errorf("%v", got)
	}
}

func TestARollbackBringsBackOptionsAndDisks(t *testing.T) {
	n := snapped(t)
	n.send("PUT", "nodes/proxmox/qemu/421/config", "delete=scsi1&description=new&scsi2=local-lvm:10")
	if exit := n.exit("POST", "nodes/proxmox/qemu/421/snapshot/before/rollback", ""); exit != "OK" {
		t.Fatal(exit)
	}
	v := n.vm(421)
	if !v.Running || v.Lock != "" || v.Config["scsi1"] != "local-lvm:vm-421-disk-1,size=40G" ||
		v.Config["scsi2"] != "" || v.Config["unused0"] != "local-lvm:vm-421-disk-2" ||
		v.Config["description"] != "new" {
		t.Errorf("%+v", v)
	}
}

func TestADestroyDeletesTheMemoryOfSnapshots(t *testing.T) {
	n := snapped(t)
	n.exit("POST", "nodes/proxmox/qemu/421/status/stop", "")
	if exit := n.exit("DELETE", "nodes/proxmox/qemu/421?purge=1", ""); exit != "OK" ||
		len(n.volumes(421)) > 0 {
		t.Errorf("%s: %v", exit, n.volumes(421))
	}
}
