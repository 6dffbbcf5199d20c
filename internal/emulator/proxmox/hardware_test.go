package proxmox

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// equipped is a datacenter of two nodes with two bridges and two mapped devices.
func equipped(t *testing.T) node {
	t.Helper()
	return withImage(t, Config{
		Nodes: []string{"proxmox", "pve2"}, Bridges: []string{"vmbr0", "vmbr1"},
		Mappings: []Mapping{{Kind: "pci", Name: "gpu", Nodes: []string{"proxmox"}},
			{Kind: "usb", Name: "zigbee"}},
	})
}

func TestAStartFailsWithoutTheHardware(t *testing.T) {
	for _, test := range []struct {
		want string
		key  string
		is   string
	}{
		{"OK", "net0", "virtio,bridge=vmbr1,mtu=1400"},
		{"OK", "usb0", "mapping=zigbee"},
		{"start failed: QEMU exited with code 1", "net0", "virtio,bridge=vmbr9"},
		{"netdev net0: MTU '9000' is bigger than the bridge MTU '1500'", "net0",
			"virtio,bridge=vmbr0,mtu=9000"},
		{"PCI device mapping not found for 'tpu'", "hostpci0", "mapping=tpu"},
		{"USB device mapping not found for 'gpu'", "usb0", "mapping=gpu"},
		{"q35 machine model is not enabled", "hostpci0", "mapping=gpu,pcie=1"},
		{"PCI device '0000:01:00.0' already in use by VMID '100'", "hostpci0", "mapping=gpu"},
	} {
		n := equipped(t)
		if strings.Contains(test.want, "already") {
			n.server.AddVM(VM{ID: 100, Running: true, Config: map[string]string{"hostpci0": "mapping=gpu"}})
		}
		n.server.AddVM(VM{ID: 421, Config: map[string]string{test.key: test.is}})
		exit, log := n.task("POST", running421+"/status/start", "")
		if exit != test.want {
			t.Errorf("%s %s: %s, want %s", test.key, test.is, exit, test.want)
		}
		if strings.HasPrefix(test.want, "start") && !slices.Contains(log, "bridge 'vmbr9' does not exist") {
			t.Errorf("the log has no reason: %q", log)
		}
	}
	n := equipped(t)
	n.server.AddVM(VM{ID: 421, Node: "pve2", Config: map[string]string{"hostpci0": "mapping=gpu"}})
	exit, _ := n.task("POST", "nodes/pve2/qemu/421/status/start", "")
	if exit != "PCI device mapping not found for 'gpu'" {
		t.Errorf("a node without the device: %s", exit)
	}
}

func TestARunningVMFollowsAsFarAsProxmoxPlugs(t *testing.T) {
	for change, test := range map[string]struct {
		pending []string
		wrong   string
	}{
		"balloon=2048":               {nil, ""},
		"balloon=0":                  {[]string{"balloon"}, ""},
		"balloon=8192":               {nil, "balloon value too large (must be smaller than assigned memory)"},
		"usb0=mapping%3Dzigbee":      {nil, ""},
		"hostpci0=mapping%3Dgpu":     {[]string{"hostpci0"}, ""},
		"bios=ovmf":                  {[]string{"bios"}, ""},
		"machine=q35":                {[]string{"machine"}, ""},
		"numa=1":                     {[]string{"numa"}, ""},
		"startup=order%3D2":          {nil, ""},
		"cpuunits=200":               {nil, ""},
		"efidisk0=local-lvm:1":       {[]string{"efidisk0"}, ""},
		"tpmstate0=local-lvm:1":      {[]string{"tpmstate0"}, ""},
		"net1=virtio,bridge%3Dvmbr1": {nil, ""},
		"net1=virtio,bridge%3Dvmbr9": {[]string{"net1"}, "Parameter verification failed."},
	} {
		n := equipped(t)
		n.server.AddVM(VM{ID: 421, Running: true, Config: map[string]string{
			"memory": "4096", "balloon": "1024", "ostype": "l26"}})
		a := n.send("PUT", running421+"/config", change)
		vm := n.server.VMs()[0]
		if got := slices.Sorted(maps.Keys(vm.Pending)); !slices.Equal(got, test.pending) ||
			(a.code == 200) != (test.wrong == "") || test.wrong != "" && a.reason != test.wrong {
			t.Errorf("%s: %d %s, pending %q", change, a.code, a.reason, got)
		}
	}
}

func TestADeviceNeedsItsMappingAndTheRightToIt(t *testing.T) {
	n := equipped(t)
	n.server.AddVM(VM{ID: 421, Pool: "castle"})
	admin := n.token
	n.token = n.limited("pveum role add Hardware --privs VM.Audit,VM.Config.HWType",
		"pveum acl modify /pool/castle --users limited@pve --roles Hardware")
	set := func(option string) string { return n.send("PUT", running421+"/config", option).reason }
	for option, want := range map[string]string{
		"hostpci0=0000:01:00.0":  "only root can set 'hostpci0' config for non-mapped devices",
		"usb0=host%3D1a86:7523":  "only root can set 'usb0' config for real devices",
		"hostpci0=mapping%3Dgpu": "Permission check failed (/mapping/pci/gpu, Mapping.Use)",
		"usb0=mapping%3Dzigbee":  "Permission check failed (/mapping/usb/zigbee, Mapping.Use)",
	} {
		if got := set(option); got != want {
			t.Errorf("%s: %s, want %s", option, got, want)
		}
	}
	names := func(path, key string) (all []string) {
		rows, _ := n.send("GET", path, "").data.([]any)
		for _, row := range rows {
			all = append(all, row.(map[string]any)[key].(string))
		}
		return all
	}
	if got := names("cluster/mapping/pci", "id"); got != nil {
		t.Errorf("it sees the mappings %v", got)
	}
	if got := names("nodes/proxmox/network?type=any_bridge", "iface"); got != nil {
		t.Errorf("it sees the bridges %v", got)
	}
	for _, command := range []string{"pveum role add Devices --privs Mapping.Use",
		"pveum acl modify /mapping/pci/gpu --users limited@pve --roles Devices",
		"pveum role add Network --privs SDN.Use",
		"pveum acl modify /sdn/zones/localnetwork/vmbr1 --users limited@pve --roles Network"} {
		if _, err := n.server.Pveum(command); err != nil {
			t.Fatal(err)
		}
	}
	if got := set("hostpci0=mapping%3Dgpu"); got != "OK" {
		t.Errorf("with the right to the mapping: %s", got)
	}
	if got := names("cluster/mapping/pci", "id"); !slices.Equal(got, []string{"gpu"}) {
		t.Errorf("it sees the mappings %v", got)
	}
	if got := names("nodes/proxmox/network?type=any_bridge", "iface"); !slices.Equal(got, []string{"vmbr1"}) {
		t.Errorf("it sees the bridges %v", got)
	}
	n.token = admin
	if got := names("nodes/proxmox/network?type=any_bridge", "iface"); len(got) != 2 {
		t.Errorf("there are the bridges %v", got)
	}
}

func TestAnImportOfADiskHasItsSize(t *testing.T) {
	n := equipped(t)
	n.server.AddVM(VM{ID: 9000, Template: true, Config: map[string]string{
		"scsi0": "local-lvm:base-9000-disk-0,size=12G"}})
	exit, _ := n.task("POST", "nodes/proxmox/qemu",
		"vmid=421&scsi0=local-lvm:0,import-from%3Dlocal-lvm:base-9000-disk-0")
	if got := n.server.VMs()[0].Config["scsi0"]; exit != "OK" || got != "local-lvm:vm-421-disk-0,size=12G" {
		t.Errorf("%s, %s", exit, got)
	}
}
