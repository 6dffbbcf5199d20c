package proxmox

import (
	"slices"
	"strings"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

func TestHardwareThatIsMissingIsNamedBeforeAnythingIsMade(t *testing.T) {
	const image = "local:import/golden.qcow2"
	whole := host.Use{Storages: []string{"local-lvm"}, Bridges: []string{"vmbr0"}, USB: []string{"zigbee"},
		Image: image}
	for name, test := range map[string]struct {
		change   func(*host.Use)
		node     string
		unusable []string
		fix      string
	}{
		"nothing": {change: func(*host.Use) {}},
		"a storage": {change: func(u *host.Use) { u.Storages = append(u.Storages, "ceph") },
			unusable: []string{"storage ceph on node proxmox does not exist, or this token may not see it; " +
				"needed by cp-01, worker-01"},
			fix: "choose another storage, or give the token Datastore.Audit on /storage/ceph"},
		"a storage without disks": {change: func(u *host.Use) { u.Storages = []string{"files"} },
			unusable: []string{"storage files on node proxmox does not allow the content images, only " +
				"import; needed by cp-01, worker-01"},
			fix: "add it: pvesm set files --content import,images"},
		"a disk that a machine leaves behind": {change: func(u *host.Use) { u.HA = true },
			unusable: []string{"storage local-lvm is not shared, and high availability moves a machine to " +
				"another node without its disk; needed by cp-01, worker-01"},
			fix: "choose a shared storage, or set ha = { enabled = false }"},
		"disks that move": {change: func(u *host.Use) {
			u.HA, u.Storages = true, []string{"ceph-vm", "local-zfs"}
		}},
		"a bridge": {change: func(u *host.Use) { u.Bridges = []string{"vmbr9"} },
			unusable: []string{"bridge vmbr9 on node proxmox does not exist, or this token may not see it; " +
				"needed by cp-01, worker-01"},
			fix: "choose another bridge, or give the token SDN.Use on /sdn/zones/localnetwork/vmbr9"},
		"mappings": {change: func(u *host.Use) { u.PCI, u.USB = []string{"tpu"}, []string{"gpu"} },
			unusable: []string{
				"PCI mapping tpu does not exist, or this token may not see it; needed by cp-01, worker-01",
				"USB mapping gpu does not exist, or this token may not see it; needed by cp-01, worker-01"},
			fix: "create it in Datacenter > Resource Mappings, or give the token Mapping.Use on " +
				"/mapping/pci/tpu"},
		"a device of the node": {change: func(u *host.Use) { u.PCI = []string{"gpu"} }, node: "pve2",
			unusable: []string{"PCI mapping gpu has no device on node pve2; needed by cp-01, worker-01"},
			fix:      "add one in Datacenter > Resource Mappings, or give a machine another node"},
		"a device for each": {change: func(u *host.Use) { u.PCI = []string{"gpu"} },
			unusable: []string{"PCI mapping gpu has too few devices on node proxmox: 1, and the machines " +
				"use 2; needed by cp-01, worker-01"},
			fix: "add one in Datacenter > Resource Mappings, or give a machine another node"},
		"an image": {change: func(u *host.Use) { u.Image = "local:import/silver.qcow2" },
			unusable: []string{"image local:import/silver.qcow2 on node proxmox does not exist, or this " +
				"token may not see it; needed by cp-01, worker-01"},
			fix: "upload it, choose another one, or give the token Datastore.Audit on /storage/local"},
		"a template": {change: func(u *host.Use) { u.Image = "local-lvm:base-9001-disk-0" },
			unusable: []string{"VM 9001 with the image local-lvm:base-9001-disk-0 does not exist, or this " +
				"token may not see it; needed by cp-01, worker-01"},
			fix: "choose another image, or give the token VM.Audit and VM.Clone on /vms/9001"},
		"a template's disk": {change: func(u *host.Use) { u.Image = "local-lvm:base-9000-disk-1" },
			unusable: []string{"VM 9000 has no disk local-lvm:base-9000-disk-1; needed by cp-01, worker-01"},
			fix:      "choose another image"},
		"nothing of a template": {change: func(u *host.Use) { u.Image = "local-lvm:base-9000-disk-0" }},
		"the storage of an image": {change: func(u *host.Use) { u.Image = "nas:import/golden.qcow2" },
			unusable: []string{"storage nas on node proxmox does not exist, or this " +
				"token may not see it; needed by cp-01, worker-01"},
			fix: "choose another storage, or give the token Datastore.Audit on /storage/nas"},
		"the node itself": {change: func(*host.Use) {}, node: "pve9", unusable: []string{
			"node pve9, where cp-01 is to be built, does not exist; there is proxmox, pve2",
			"node pve9, where worker-01 is to be built, does not exist; there is proxmox, pve2"},
			fix: "give cp-01 a node that is there"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"},
				Mappings: []emulator.Mapping{{Kind: "pci", Name: "gpu", Nodes: []string{"proxmox"}},
					{Kind: "usb", Name: "zigbee"}},
				Storages: []emulator.Storage{{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}},
					{ID: "files", Type: "dir", Content: []string{"import"}},
					{ID: "ceph-vm", Type: "rbd", Content: []string{"images"}, Shared: true},
					{ID: "local-zfs", Type: "zfspool", Content: []string{"images"}},
					{ID: "local", Type: "dir", Content: []string{"import", "images"}}}})
			d.server.AddVM(emulator.VM{ID: 9000, Node: "pve2", Template: true, Config: map[string]string{
				"scsi0": "local-lvm:base-9000-disk-0,size=8G"}})
			for _, node := range []string{"proxmox", "pve2"} {
				d.server.AddDisk(emulator.Disk{Volume: image, Node: node, Content: "import"})
			}
			u := whole
			test.change(&u)
			c := &vmCheck{client: d.client(t), resource: defaultResource, node: "proxmox",
				interval: time.Second, timeout: time.Minute,
				ids:  map[string]int{"cp-01": 421, "worker-01": 431},
				uses: map[string]host.Use{"cp-01": u, "worker-01": u}}
			if test.node != "" {
				c.node = test.node
			}
			found, err := c.inspect(t.Context(), nil, silent)
			if err != nil {
				t.Fatal(err)
			}
			var unusable []string
			for _, f := range found.Unusable {
				unusable = append(unusable, f.What)
			}
			if !slices.Equal(unusable, test.unusable) {
				t.Errorf("it reports %q, want %q", unusable, test.unusable)
			}
			if len(found.Unusable) > 0 && !strings.HasPrefix(found.Unusable[0].Fixes[0], test.fix) {
				t.Errorf("fix: %q", found.Unusable[0].Fixes)
			}
		})
	}
}

// A template may be deleted once its machines exist, and a token sees of a node what it may use.
func TestHardwareIsCheckedAsFarAsItIsNeeded(t *testing.T) {
	d := newDatacenter(t, emulator.Config{Bridges: []string{"vmbr0", "vmbr1"}})
	d.server.AddVM(emulator.VM{ID: 421, Name: "cp-01", Running: true})
	c := &vmCheck{client: d.client(t), resource: defaultResource, node: "proxmox", interval: time.Second,
		timeout: time.Minute, ids: map[string]int{"cp-01": 421},
		uses: map[string]host.Use{"cp-01": {Bridges: []string{"vmbr1"}, Image: "local-lvm:base-9000-disk-0"}}}
	known := gate.Known{Type: values.TypeVM, Address: defaultResource + `["cp-01"]`}
	known.Attributes = map[string]any{"vm_id": 421.0, "node_name": "proxmox", "name": "cp-01"}
	found, err := c.inspect(t.Context(), []gate.Known{known}, silent)
	if err != nil || len(found.Unusable) > 0 {
		t.Errorf("a machine that exists: %v, %v", found.Unusable, err)
	}
	f := Footprint{Pool: "blue", Nodes: []string{"proxmox"}}
	f.Uses([]host.Use{{Storages: []string{"local-lvm"}, Bridges: []string{"vmbr0"}}})
	d.limit(t, append([]string{"pveum pool add blue"}, f.Commands("castle@pve!blue")...)...)
	found, err = c.inspect(t.Context(), []gate.Known{known}, silent)
	if err != nil || len(found.Unusable) != 1 ||
		!strings.HasPrefix(found.Unusable[0].What, "bridge vmbr1 on node proxmox does not exist, or this") {
		t.Errorf("a bridge that the token may not use: %v, %v", found.Unusable, err)
	}
}
