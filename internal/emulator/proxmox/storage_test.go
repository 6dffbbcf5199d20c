package proxmox

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestResize(t *testing.T) {
	n := listen(t, Config{})
	disk := map[string]string{"scsi0": "local-lvm:vm-421-disk-0,iothread=1,size=8G"}
	n.server.AddVM(VM{ID: 421, Config: disk})
	for _, step := range []struct{ size, want string }{{"21474836480", "20G"}, {"%2B10G", "30G"},
		{"30G", "30G"}, {"30721M", "30721M"}} {
		if exit, _ := n.task("PUT", "nodes/proxmox/qemu/421/resize",
			"disk=scsi0&size="+step.size); exit != "OK" {
			t.Errorf("to %s: %s", step.size, exit)
		}
		if got := n.config("421")["scsi0"]; got != "local-lvm:vm-421-disk-0,iothread=1,size="+step.want {
			t.Errorf("after %s: %v", step.size, got)
		}
	}
	n.send("PUT", "nodes/proxmox/qemu/421/config", "scsi0=file=local-lvm:vm-421-disk-0,iothread=0")
	if got := n.config("421")["scsi0"]; got != "local-lvm:vm-421-disk-0,iothread=0,size=30721M" {
		t.Errorf("an update without a size: %v", got)
	}
}

func TestDownloadKeepsURLAndChecksum(t *testing.T) {
	n := listen(t, Config{})
	meta := n.send("GET", "nodes/proxmox/query-url-metadata?url="+
		url.QueryEscape("https://factory.talos.dev/a/nocloud-amd64.qcow2?x=1"), "").data.(map[string]any)
	if meta["filename"] != "nocloud-amd64.qcow2" {
		t.Errorf("metadata %v", meta)
	}
	const call = "nodes/proxmox/storage/local/download-url"
	form := "content=import&filename=talos.qcow2&url=https://factory.talos.dev/a" +
		"&checksum-algorithm=sha256&checksum=AA"
	for range 2 { // with the right checksum, a second time is no error
		if exit, _ := n.task("POST", call, form); exit != "OK" {
			t.Error(exit)
		}
	}
	if exit, _ := n.task("POST", call, strings.Replace(form, "=AA", "=bb",
		1)); exit != "checksum mismatch: got 'aa' != expect 'bb', aborting" {
		t.Error(exit)
	}
	rows := n.send("GET", "nodes/proxmox/storage/local/content?content=import", "").data.([]any)
	if len(rows) != 1 || rows[0].(map[string]any)["volid"] != imageVolume ||
		n.server.Disks()[0].Source != "https://factory.talos.dev/a" {
		t.Errorf("content %v, volumes %+v", rows, n.server.Disks())
	}
	for _, volume := range []string{"import%2Ftalos.qcow2", "local:import/talos.qcow2"} {
		if got := n.send("GET", "nodes/proxmox/storage/local/content/"+volume,
			"").data.(map[string]any)["path"]; got != "/var/lib/vz/import/talos.qcow2" {
			t.Errorf("%s is at %v", volume, got)
		}
	}
	n.task("DELETE", "nodes/proxmox/storage/local/content/import%2Ftalos.qcow2", "")
	if left := n.server.Disks(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestDestroyFreesTheDisksOfTheVM(t *testing.T) {
	for query, left := range map[string][]string{
		"":                               {imageVolume, "local-lvm:vm-421-disk-9", "local-lvm:vm-422-disk-0"},
		"?destroy-unreferenced-disks=1":  {imageVolume, "local-lvm:vm-422-disk-0"},
		"/?destroy-unreferenced-disks=0": {imageVolume, "local-lvm:vm-421-disk-9", "local-lvm:vm-422-disk-0"},
	} {
		n := withImage(t, Config{})
		n.server.AddDisk(Disk{Volume: "local-lvm:vm-421-disk-9", Owner: 421})
		n.server.AddDisk(Disk{Volume: "local-lvm:vm-422-disk-0", Owner: 422})
		n.task("POST", "nodes/proxmox/qemu", order())
		n.send("PUT", "nodes/proxmox/qemu/421/config", "delete=scsi1")
		if config := n.config("421"); config["scsi1"] != nil ||
			config["unused0"] != "local-lvm:vm-421-disk-1" {
			t.Errorf("a disk that is taken off stays as unused: %v", config)
		}
		n.task("DELETE", "nodes/proxmox/qemu/421"+query, "")
		slices.Sort(left)
		if got := volumes(n.server); !slices.Equal(got, left) {
			t.Errorf("%q leaves %v, want %v", query, got, left)
		}
	}
}

func TestAnAttachedVolumeIsNotUnused(t *testing.T) {
	n := withImage(t, Config{})
	n.task("POST", "nodes/proxmox/qemu", order())
	n.send("PUT", "nodes/proxmox/qemu/421/config", "delete=scsi1")
	n.send("PUT", "nodes/proxmox/qemu/421/config", "scsi1=local-lvm:vm-421-disk-1,iothread=1")
	if config := n.config("421"); config["unused0"] != nil ||
		config["scsi1"] != "local-lvm:vm-421-disk-1,iothread=1,size=50G" {
		t.Errorf("attached again: %v", config)
	}
	n.send("PUT", "nodes/proxmox/qemu/421/config", "delete=scsi1&force=1")
	if config := n.config("421"); config["unused0"] != nil || config["scsi1"] != nil ||
		slices.Contains(volumes(n.server), "local-lvm:vm-421-disk-1") {
		t.Errorf("deleted by force: %v, volumes %v", config, volumes(n.server))
	}
}

func TestDestroyWarnsAboutADiskThatItCannotFree(t *testing.T) {
	n := listen(t, Config{})
	disk := map[string]string{"scsi0": "local-lvm:vm-421-disk-0,size=20G"}
	n.server.AddVM(VM{ID: 421, HA: true, Config: disk})
	n.server.AddDisk(Disk{Volume: "local-lvm:vm-421-disk-0", Owner: 421, Stuck: true})
	exit, log := n.task("DELETE", "nodes/proxmox/qemu/421?purge=1", "")
	if exit != "WARNINGS: 1" || !strings.HasPrefix(log[0],
		"WARN: Could not remove disk 'local-lvm:vm-421-disk-0', check manually: ") {
		t.Errorf("%s %q", exit, log)
	}
	if len(n.server.VMs()) != 0 || len(n.server.Disks()) != 1 {
		t.Errorf("left: %v %v", n.server.VMs(), n.server.Disks())
	}
}
