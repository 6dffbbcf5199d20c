//go:build integration

package proxmox

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

// everything sets each attribute that a machine may have: worker-01 by itself, cp-01 by defaults.
const everything = `
cluster_name                  = "blue"
proxmox_node_name             = "proxmox"
serviceaccount_public_key_pem = "our key"
talos_images                  = { cp-01 = "local:import/blue-talos-v1.13.0.qcow2" }

vip         = "127.10.0.20"
network     = { gateway = "127.10.0.1", dns = ["127.10.0.1"] }
vm_id_range = { first = 421, last = 439 }

machine_defaults = {
  all          = { cores = 2, memory = 4096, cpu_type = "host", datastore_id = "fast" }
  controlplane = { bridge = "vmbr1", vlan_id = 20, startup = { order = 1, up_delay = 30 } }
}

nodes = {
  cp-01 = { role = "controlplane", vm_id = 421, address = "127.10.0.21" }
  worker-01 = {
    role = "worker", vm_id = 431, address = "127.10.0.31", node_name = "proxmox"

    cores           = 4
    cpu_type        = "x86-64-v3"
    cpu_units       = 200
    numa            = true
    memory          = 8192
    memory_floating = 4096
    machine_type    = "q35"
    bios            = "ovmf"
    tpm             = true
    startup         = { order = 2, up_delay = 10, down_delay = 60 }

    image                 = "local-lvm:base-9000-disk-0"
    datastore_id          = "local-lvm"
    system_disk           = 40
    longhorn_disk         = 50
    longhorn_datastore_id = "fast"
    disks                 = { scsi2 = { size = 5 }, scsi10 = { size = 7, datastore_id = "fast" } }

    bridge      = "vmbr0"
    vlan_id     = 30
    mac_address = "bc:24:11:2a:3b:4c"
    mtu         = 1400
    network_devices = [
      { bridge = "vmbr1", mac_address = "BC:24:11:2A:3B:4D", mtu = 1, vlan_id = 40 },
      { address = "10.0.20.5/24" },
      {},
    ]

    pci = [{ mapping = "gpu", rombar = false, primary_gpu = true }, { mapping = "nic", pcie = false }]
    usb = [{ mapping = "zigbee", usb3 = true }]
  }
}
`

// hardware is a datacenter that has what everything names.
func hardware() emulator.Config {
	files := []string{"import", "iso", "snippets"}
	return emulator.Config{
		Bridges: []string{"vmbr0", "vmbr1"},
		Storages: []emulator.Storage{
			{ID: "local", Type: "dir", Content: files, Path: "/var/lib/vz"},
			{ID: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}},
			{ID: "fast", Type: "dir", Content: []string{"images"}, Path: "/mnt/fast"},
		},
		Mappings: []emulator.Mapping{{Kind: "pci", Name: "gpu"}, {Kind: "pci", Name: "nic"},
			{Kind: "usb", Name: "zigbee"}},
	}
}

// newStage makes a working directory of the library's own stage with these values.
func newStage(t *testing.T, d datacenter, values string) root {
	t.Helper()
	files := map[string]string{"terraform.tfvars": values + fmt.Sprintf(
		"proxmox_endpoint = %q\nproxmox_api_token = %q\n", d.endpoint+"/", token)}
	names, err := filepath.Glob("../../../stages/platform/proxmox-machines/*.tf")
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = string(content)
	}
	d.server.AddDisk(emulator.Disk{Volume: "local:import/blue-talos-v1.13.0.qcow2", Content: "import",
		Size: 2 << 30, Format: "qcow2"})
	d.server.AddVM(emulator.VM{ID: 9000, Name: "golden", Template: true, Config: map[string]string{
		"scsi0": "local-lvm:base-9000-disk-0,size=12G"}})
	return newRootOf(t, d, files)
}

// revalue replaces the stage's values.
func (r root) revalue(d datacenter, values string) {
	r.t.Helper()
	values += fmt.Sprintf("proxmox_endpoint = %q\nproxmox_api_token = %q\n", d.endpoint+"/", token)
	if err := os.WriteFile(filepath.Join(r.dir, "terraform.tfvars"), []byte(values), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func TestTheRealProviderSetsAllHardware(t *testing.T) {
	d := newDatacenter(t, hardware())
	r := newStage(t, d, everything)
	r.must(apply...)
	d.server.Idle()
	for _, want := range []struct {
		id     int
		config map[string]string
	}{
		{421, map[string]string{"cores": "2", "memory": "4096", "cpu": "host", "bios": "seabios",
			"net0": "bridge=vmbr1", "net1": "", "startup": "order=1,up=30", "scsi0": "fast:421/vm-421-disk-0",
			"scsi1": "", "efidisk0": "", "hostpci0": ""}},
		{431, map[string]string{"cores": "4", "cpu": "x86-64-v3", "cpuunits": "200", "numa": "1",
			"memory": "8192", "balloon": "4096", "machine": "q35", "bios": "ovmf",
			"startup": "order=2,up=10,down=60", "efidisk0": "local-lvm:vm-431-",
			"tpmstate0": "local-lvm:vm-431-", "scsi0": "local-lvm:vm-431-",
			"scsi1": "fast:431/vm-431-", "scsi2": "local-lvm:vm-431-",
			"scsi10": "fast:431/", "ide2": "local-lvm:vm-431-cloudinit",
			"net0": "virtio=BC:24:11:2A:3B:4C", "net1": "virtio=BC:24:11:2A:3B:4D",
			"net2": "bridge=vmbr0", "net3": "bridge=vmbr0", "ipconfig0": "gw=127.10.0.1,ip=127.10.0.31/24",
			"ipconfig1": "", "ipconfig2": "ip=10.0.20.5/24", "ipconfig3": "",
			"hostpci0": "mapping=gpu", "hostpci1": "mapping=nic", "usb0": "mapping=zigbee"}},
	} {
		vm := d.vm(t, want.id)
		for _, key := range slices.Sorted(maps.Keys(want.config)) {
			if value := want.config[key]; !strings.Contains(vm.Config[key], value) ||
				value == "" && vm.Config[key] != "" {
				t.Errorf("VM %d: %s is %q, want %q", want.id, key, vm.Config[key], value)
			}
		}
		if !vm.Running || len(vm.Pending) > 0 {
			t.Errorf("VM %d: running %v, pending %v", want.id, vm.Running, vm.Pending)
		}
	}
	if changes := r.plan(); len(changes) > 0 {
		t.Errorf("a second plan changes %v\n%s", changes, r.must("show", "-no-color", "plan"))
	}
	r.must(destroy...)
	d.server.Idle()
	if vms := d.server.VMs(); len(vms) != 1 || len(d.server.Disks()) != 2 {
		t.Errorf("left over: machines %v, volumes %v", vms, d.server.Disks())
	}
}

// vm returns a machine of the datacenter.
func (d datacenter) vm(t *testing.T, id int) emulator.VM {
	t.Helper()
	for _, vm := range d.server.VMs() {
		if vm.ID == id {
			return vm
		}
	}
	t.Fatalf("there is no VM %d", id)
	return emulator.VM{}
}
