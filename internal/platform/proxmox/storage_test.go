package proxmox

import (
	"path"
	"slices"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
)

const imageFile = `proxmox_virtual_environment_download_file.talos["proxmox"]`

func TestStorageCheck(t *testing.T) {
	for name, test := range map[string]struct {
		node, storage string
		inState       bool
		unusable, fix string
		ours          []string // imports
	}{
		"the image is not there": {},
		"the node is offline": {node: "pve2",
			unusable: "node pve2, which writes to storage local, is offline or missing",
			fix:      "bring it back, or give its machines another node"},
		"the node does not exist": {node: "pve9",
			unusable: "node pve9, which writes to storage local, is offline or missing",
			fix:      "bring it back, or give its machines another node"},
		"the storage does not exist": {storage: "ceph",
			unusable: "storage ceph on node proxmox does not exist, or this token may not see it",
			fix:      "choose another storage, or give the token Datastore.Audit on /storage/ceph"},
		"the storage takes no images": {storage: "local-lvm",
			unusable: "storage local-lvm on node proxmox does not allow the content import, " +
				"only images,rootdir",
			fix: "add it: pvesm set local-lvm --content images,rootdir,import"},
		"the image is there":        {ours: []string{imageFile + " proxmox/" + image().Volume}},
		"the image is in the state": {inState: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
			d.server.SetOffline("pve2", true)
			c := storageCheck{client: d.client(t), content: "import", storage: "local",
				resource: "proxmox_virtual_environment_download_file.talos",
				files:    map[string]string{"proxmox": path.Base(image().Volume)}}
			if test.ours != nil || test.inState {
				d.server.AddDisk(image())
			}
			if test.node != "" {
				c.files = map[string]string{test.node: "talos.qcow2"}
			}
			if test.storage != "" {
				c.storage = test.storage
			}
			var known []gate.Known
			if test.inState {
				known = append(known, gate.Known{Address: imageFile})
			}
			found, err := c.inspect(t.Context(), known, silent)
			if err != nil {
				t.Fatal(err)
			}
			var ours []string
			for _, own := range found.Ours {
				if ours = append(ours, own.Import.Address+" "+own.Import.ID); !own.Borrowed {
					t.Errorf("%s would be deleted", own.Import.ID)
				}
			}
			var what, fix string
			for _, u := range found.Unusable {
				what, fix = what+u.What, fix+u.Fixes[0]
			}
			if what != test.unusable || fix != test.fix || !slices.Equal(ours, test.ours) {
				t.Errorf("unusable %q, fix %q, ours %v", what, fix, ours)
			}
		})
	}
}

// Two nodes see one file on a shared storage: there is one instance, whichever node asks.
func TestASharedStorageHasOneFileForAllNodes(t *testing.T) {
	const shared = `proxmox_virtual_environment_download_file.talos["nfs"]`
	volume := emulator.Disk{Volume: "nfs:import/talos.qcow2", Content: "import"}
	for name, test := range map[string]struct {
		sharedKey string
		known     []gate.Known
		want      []string
		suffix    string // of the keys: several images
	}{
		"one instance":               {"nfs", nil, []string{shared + " proxmox/" + volume.Volume}, ""},
		"one instance, in the state": {"nfs", []gate.Known{{Address: shared}}, nil, ""},
		"one of several images": {"nfs", nil, []string{
			`proxmox_virtual_environment_download_file.talos["nfs/613e"] proxmox/` + volume.Volume}, "/613e"},
		"one of several images of each node": {"", nil, []string{
			`proxmox_virtual_environment_download_file.talos["proxmox/613e"] proxmox/` + volume.Volume,
			`proxmox_virtual_environment_download_file.talos["pve2/613e"] pve2/` + volume.Volume}, "/613e"},
		"a stage with one for a node": {"", []gate.Known{{Address: imageFile}}, []string{
			`proxmox_virtual_environment_download_file.talos["pve2"] pve2/` + volume.Volume}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"},
				Storages: []emulator.Storage{{ID: "nfs", Type: "nfs", Content: []string{"import"},
					Shared: true}}})
			d.server.AddDisk(volume)
			c := storageCheck{client: d.client(t), content: "import", storage: "nfs",
				sharedKey: test.sharedKey, resource: "proxmox_virtual_environment_download_file.talos",
				files: map[string]string{
					"proxmox" + test.suffix: "talos.qcow2", "pve2" + test.suffix: "talos.qcow2"}}
			found, err := c.inspect(t.Context(), test.known, silent)
			var ours []string
			for _, own := range found.Ours {
				ours = append(ours, own.Import.Address+" "+own.Import.ID)
			}
			if err != nil || len(found.Unusable) > 0 || !slices.Equal(ours, test.want) {
				t.Errorf("ours %q, in the way %v, %v", ours, found.Unusable, err)
			}
		})
	}
}
