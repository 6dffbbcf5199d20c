package proxmox

import (
	"fmt"
	"slices"
	"testing"
)

const running421 = "nodes/proxmox/qemu/421"

// pending are the rows of what waits for the start of the VM 421.
func (n node) pending() (all []string) {
	n.t.Helper()
	for _, row := range n.send("GET", running421+"/pending", "").data.([]any) {
		row := row.(map[string]any)
		if row["pending"] != nil || row["delete"] != nil {
			all = append(all, fmt.Sprintf("%v %v %v %v", row["key"], row["value"], row["pending"],
				row["delete"]))
		}
	}
	return all
}

func TestARunningVMKeepsWhatItCannotFollowUntilItsStart(t *testing.T) {
	n := withImage(t, Config{Bridges: []string{"vmbr0", "vmbr1"}})
	n.task("POST", "nodes/proxmox/qemu", order())
	n.task("POST", running421+"/status/start", "")
	before := n.config("421")["digest"]
	n.send("PUT", running421+"/config", "memory=8192&cpu=host&description=by+hand&delete=cores&"+
		"net0=virtio,bridge=vmbr1&scsi1=local-lvm:vm-421-disk-1,iothread=0,backup=0&scsi2=local-lvm:1")
	now := n.send("GET", running421+"/config?current=1", "").data.(map[string]any)
	then := n.config("421")
	for _, test := range []struct {
		key       string
		now, then any
	}{
		{"memory", "4096", "8192"}, {"cpu", nil, "host"}, {"cores", 4.0, nil},
		{"description", "by hand", "by hand"}, {"net0", then["net0"], then["net0"]},
		{"scsi1", "local-lvm:vm-421-disk-1,iothread=1,size=50G",
			"local-lvm:vm-421-disk-1,backup=0,iothread=0,size=50G"},
		{"scsi2", "local-lvm:vm-421-disk-2,size=1G", "local-lvm:vm-421-disk-2,size=1G"},
	} {
		if now[test.key] != test.now || then[test.key] != test.then {
			t.Errorf("%s: now %v, then %v", test.key, now[test.key], then[test.key])
		}
	}
	want := []string{"cores 4 <nil> 1", "memory 4096 8192 <nil>",
		"scsi1 local-lvm:vm-421-disk-1,iothread=1,size=50G " +
			"local-lvm:vm-421-disk-1,backup=0,iothread=0,size=50G <nil>", "cpu <nil> host <nil>"}
	if got := n.pending(); !slices.Equal(got, want) {
		t.Errorf("pending %q\nwant %q", got, want)
	}
	if then["digest"] == before || then["digest"] != now["digest"] {
		t.Errorf("digests: %v before, %v and %v", before, now["digest"], then["digest"])
	}
	n.send("PUT", running421+"/config", "memory=4096")
	if got := n.pending(); slices.ContainsFunc(got, func(s string) bool { return s[:3] == "mem" }) {
		t.Errorf("pending although it is the current one: %q", got)
	}
	n.send("PUT", running421+"/config", "memory=8192")
	n.server.PowerOff(421) // from within
	if len(n.pending()) == 0 {
		t.Error("a guest that switched itself off has applied what waits for its start")
	}
	n.task("POST", running421+"/status/start", "")
	now = n.send("GET", running421+"/config?current=1", "").data.(map[string]any)
	if got := n.pending(); len(got) > 0 || now["memory"] != "8192" || now["cores"] != nil {
		t.Errorf("after the start: %q, %v", got, now)
	}
	n.send("PUT", running421+"/config", "memory=4096")
	n.task("POST", running421+"/status/stop", "")
	if got := n.pending(); len(got) > 0 {
		t.Errorf("after a stop: %q", got)
	}
}

func TestHotplugDecidesWhatARunningVMFollows(t *testing.T) {
	for _, test := range []struct {
		hotplug, change string
		want            []string
	}{
		{"", "net0=virtio,bridge=vmbr1", nil},
		{"0", "delete=net0", []string{"net0 virtio=BC:24:11:00:00:01 <nil> 1"}},
		{"disk", "delete=scsi1", nil},
		{"network", "delete=scsi1", []string{"scsi1 local-lvm:vm-421-disk-1 <nil> 1"}},
		{"network,disk,memory", "memory=8192", nil},
		{"1", "ide2=none,media=cdrom", nil},
		{"1", "delete=ide2", []string{"ide2 local-lvm:vm-421-cloudinit,media=cdrom <nil> 1"}},
	} {
		n := listen(t, Config{Bridges: []string{"vmbr0", "vmbr1"}})
		n.server.AddVM(VM{ID: 421, Running: true, Config: map[string]string{
			"hotplug": test.hotplug, "numa": "1", "memory": "4096", "net0": "virtio=BC:24:11:00:00:01",
			"scsi1": "local-lvm:vm-421-disk-1", "ide2": "local-lvm:vm-421-cloudinit,media=cdrom"}})
		n.send("PUT", running421+"/config", test.change)
		if got := n.pending(); !slices.Equal(got, test.want) {
			t.Errorf("hotplug %q, %s: pending %q, want %q", test.hotplug, test.change, got, test.want)
		}
	}
}
