package proxmox

import (
	"strings"
	"testing"
	"time"
)

// golden is a datacenter of two nodes with the template 9000 on shared storage, and 9001 on a node's own.
func golden(t *testing.T, config Config) node {
	t.Helper()
	config.Nodes = []string{"proxmox", "pve2"}
	config.Storages = []Storage{{ID: "nfs", Type: "nfs", Content: []string{"images"}, Shared: true},
		{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}}}
	n := listen(t, config)
	for id, disk := range map[int]string{9000: "nfs:9000/base-9000-disk-0.raw",
		9001: "local-lvm:base-9001-disk-0"} {
		n.server.AddVM(VM{ID: id, Name: "golden", Template: true, Config: map[string]string{
			"scsi0": disk + ",size=8G,ssd=1", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr1", "agent": "1",
			"description": "golden", "smbios1": "uuid=1b1b1b1b-1111-4111-8111-111111111111"}})
	}
	return n
}

func TestACloneIsRefusedAsOnARealNode(t *testing.T) {
	for name, test := range map[string]struct{ form, id, reason string }{
		"an id that is taken": {"newid=9001", "9000", "unable to create VM 9001: config file already exists"},
		"a linked clone on another storage": {"newid=421&full=0&storage=local-lvm", "9000",
			"parameter 'storage' not allowed for linked clones"},
		"local disks, on another node": {"newid=421&target=pve2", "9001",
			"can't clone VM to node 'pve2' (VM uses local storage)"},
		"to local storage of another node": {"newid=421&full=1&target=pve2&storage=local-lvm", "9000",
			"can't clone to non-shared storage 'local-lvm'"},
		"a pool that does not exist": {"newid=421&pool=none", "9000", "pool 'none' does not exist"},
		"a linked clone of no template": {"newid=421&full=0", "430",
			"Linked clone feature is not supported for 'local-lvm:vm-430-disk-0' (scsi0)"},
		"a template with a lock": {"newid=421", "431", "VM is locked (backup)"},
	} {
		t.Run(name, func(t *testing.T) {
			n := golden(t, Config{})
			n.server.AddVM(VM{ID: 430, Config: map[string]string{"scsi0": "local-lvm:vm-430-disk-0,size=8G"}})
			n.server.AddVM(VM{ID: 431, Template: true, Lock: "backup"})
			a := n.send("POST", "nodes/proxmox/qemu/"+test.id+"/clone", test.form)
			if a.code != 500 || a.reason != test.reason {
				t.Errorf("%d %q", a.code, a.reason)
			}
		})
	}
}

// The copy is there with a lock, a uuid of its own and the description of the call before its disks are.
func TestACloneIsLockedUntilItsDisksAreCopied(t *testing.T) {
	n := golden(t, Config{Durations: map[string]time.Duration{"qmclone": time.Hour}})
	n.send("POST", "nodes/proxmox/qemu/9000/clone", "newid=421&name=blue-cp-01&description=mine")
	v := n.vm(421)
	if v.Lock != "clone" || v.Name != "blue-cp-01" || v.Config["description"] != "mine" ||
		v.Config["smbios1"] == n.vm(9000).Config["smbios1"] || v.Config["scsi0"] != "" {
		t.Errorf("%+v", v)
	}
}

// vm is one guest.
func (n node) vm(id int) VM {
	for _, v := range n.server.VMs() {
		if v.ID == id {
			return v
		}
	}
	return VM{}
}

func TestACloneHasTheDisksOfItsTemplate(t *testing.T) {
	for name, test := range map[string]struct{ form, disk, node string }{
		"linked":          {"", "nfs:9000/base-9000-disk-0.raw/421/vm-421-disk-0.raw", "proxmox"},
		"full":            {"&full=1", "nfs:421/vm-421-disk-0.raw", "proxmox"},
		"full, elsewhere": {"&full=1&storage=local-lvm", "local-lvm:vm-421-disk-0", "proxmox"},
		"linked, on another node": {"&target=pve2", "nfs:9000/base-9000-disk-0.raw/421/vm-421-disk-0.raw",
			"pve2"},
	} {
		t.Run(name, func(t *testing.T) {
			n := golden(t, Config{})
			before := n.vm(9000)
			exit, _ := n.task("POST", "nodes/proxmox/qemu/9000/clone", "newid=421"+test.form)
			if exit != "OK" {
				t.Fatal(exit)
			}
			v := n.vm(421)
			card := v.Config["net0"]
			if v.Config["scsi0"] != test.disk+",size=8G,ssd=1" || v.Node != test.node || v.Lock != "" ||
				v.Template || v.Image != "base-9000-disk-0.raw" || v.Config["agent"] != "1" ||
				!strings.HasSuffix(card, ",bridge=vmbr1") || card == before.Config["net0"] {
				t.Errorf("%+v", v)
			}
			if exit, _ := n.task("DELETE", "nodes/"+test.node+"/qemu/421?purge=1", ""); exit != "OK" {
				t.Fatal(exit)
			}
			after, disks := n.vm(9000), n.server.Disks()
			if after.Config["scsi0"] != before.Config["scsi0"] || len(disks) != 2 {
				t.Errorf("%+v, %v", after, disks)
			}
		})
	}
}

func TestACloneNeedsItsRights(t *testing.T) {
	for _, test := range []struct{ lacks, want string }{
		{"nothing", ""}, {"VM.Clone", "Permission check failed (/vms/9000, VM.Clone)"},
		{"VM.Allocate", "Permission check failed (/vms/421, VM.Allocate)"},
		{"Datastore.AllocateSpace", "Permission check failed (/storage/nfs, Datastore.AllocateSpace)"},
	} {
		n := golden(t, Config{})
		commands := []string{"pveum role add Machines --privs VM.Allocate",
			"pveum role add Templates --privs VM.Clone",
			"pveum role add Disks --privs Datastore.AllocateSpace",
			"pveum acl modify /pool/castle --users limited@pve --roles Machines",
			"pveum acl modify /vms/9000 --users limited@pve --roles Templates",
			"pveum acl modify /storage/nfs --users limited@pve --roles Disks"}
		for i := range commands {
			commands[i] = strings.ReplaceAll(commands[i], "--privs "+test.lacks, "--privs VM.Console")
		}
		n.token = n.limited(commands...)
		a := n.send("POST", "nodes/proxmox/qemu/9000/clone", "newid=421&pool=castle")
		if test.want != "" && (a.code != 403 || a.reason != test.want) || test.want == "" && a.code != 200 {
			t.Errorf("without %s: %d %q", test.lacks, a.code, a.reason)
		}
	}
}
