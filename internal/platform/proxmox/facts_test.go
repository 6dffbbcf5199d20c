package proxmox

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// asLeft is the machine 421 as castle has left it, on proxmox: its state and the virtual machine.
func asLeft() (gate.Known, emulator.VM) {
	const uuid = "11111111-1111-4111-8111-111111111111"
	disk := func(drive, path string) any {
		return map[string]any{"interface": drive, "datastore_id": "local-lvm", "path_in_datastore": path}
	}
	k := noted(known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01", "node_name": "proxmox",
		"mac_addresses": []string{"BC:24:11:00:00:01"},
		"disk":          []any{disk("scsi0", "vm-421-disk-0"), disk("scsi1", "vm-421-disk-1")}}), "421", uuid)
	k.MachineID.Node = "proxmox"
	vm := ours(421, "blue-cp-01")
	vm.Config["smbios1"] = "uuid=" + uuid
	vm.Config["scsi0"] = "local-lvm:vm-421-disk-0,size=8G"
	vm.Config["scsi1"] = "local-lvm:vm-421-disk-1,size=50G"
	vm.Config["ide2"] = "local-lvm:vm-421-cloudinit,media=cdrom"
	return k, vm
}

func TestFactsTellWhatIsNotAsCastleHasLeftIt(t *testing.T) {
	set := func(options map[string]string) func(*emulator.Server) {
		return func(s *emulator.Server) { s.Configure(421, options) }
	}
	waits := func(s *emulator.Server) {
		vm := s.VMs()[0]
		vm.Running, vm.Config["memory"], vm.Config["cpu"] = true, "4096", "host"
		vm.Pending = map[string]string{"memory": "8192", "cpu": ""}
		s.AddVM(vm)
	}
	for name, test := range map[string]struct {
		change func(*emulator.Server)
		want   string
	}{
		"nothing": {func(*emulator.Server) {}, ""},
		"stopped": {func(s *emulator.Server) { s.PowerOff(421) },
			"cp-01 (VM 421) is stopped on node proxmox; castle create blue starts it"},
		"waiting for its start": {waits, "cp-01 (VM 421) needs a restart: cpu host → none, memory 4096 → " +
			"8192; castle rollout drains it, stops and starts it: a reboot inside it does not apply this"},
		"waiting, and the rest is unknown": {func(s *emulator.Server) {
			waits(s)
			s.Fail(emulator.Fault{Path: "nodes/*/qemu/421/pending", Code: 403, Text: "refused"})
		}, "cp-01 (VM 421) may wait for a restart: proxmox: get nodes/proxmox/qemu/421/pending: 403 "},
		"another machine that waits": {func(s *emulator.Server) {
			waits(s)
			s.Configure(421, map[string]string{"smbios1": "uuid=22222222-2222-4222-8222-222222222222"})
		}, `cp-01 (VM 421) is not castle's machine but VM 421 "blue-cp-01" on node proxmox: `},
		"moved": {func(s *emulator.Server) { s.Migrate(421, "pve2") },
			"cp-01 (VM 421) has moved from node proxmox to node pve2; to keep it there, set node_name = " +
				`"pve2" for cp-01 in terraform.tfvars`},
		"gone": {func(s *emulator.Server) { s.RemoveVM(421) }, "cp-01 (VM 421) does not exist any more"},
		"a foreign uuid": {set(map[string]string{"smbios1": "uuid=22222222-2222-4222-8222-222222222222"}),
			`cp-01 (VM 421) is not castle's machine but VM 421 "blue-cp-01" on node proxmox: expected the ` +
				"uuid 11111111-1111-4111-8111-111111111111, and this one's is " +
				"22222222-2222-4222-8222-222222222222"},
		"a detached disk": {set(map[string]string{"scsi1": "", "unused0": "local-lvm:vm-421-disk-1"}),
			"cp-01 (VM 421) has lost its disk scsi1 (local-lvm:vm-421-disk-1)"},
		"an exchanged disk": {set(map[string]string{"scsi1": "local-lvm:vm-421-disk-7,size=50G"}),
			"cp-01 (VM 421) has the disk local-lvm:vm-421-disk-7 as scsi1, and castle has made " +
				"local-lvm:vm-421-disk-1 there"},
		"a further disk": {set(map[string]string{"scsi2": "local-lvm:vm-421-disk-2,size=1G"}),
			"cp-01 (VM 421) has a disk that castle has not made: scsi2 (local-lvm:vm-421-disk-2)"},
		"EFI variables that castle has not made": {set(map[string]string{
			"efidisk0": "local-lvm:vm-421-disk-2,size=4M"}),
			"cp-01 (VM 421) has a disk that castle has not made: efidisk0 (local-lvm:vm-421-disk-2)"},
		"a second network card": {set(map[string]string{"net1": "virtio=BC:24:11:00:00:02"}),
			"cp-01 (VM 421) has a network card that castle has not made: net1 (BC:24:11:00:00:02)"},
		"an exchanged network card": {set(map[string]string{"net0": "virtio=BC:24:11:00:00:02"}),
			"cp-01 (VM 421) has a network card that castle has not made: net0 (BC:24:11:00:00:02); " +
				"cp-01 (VM 421) has lost its network card BC:24:11:00:00:01"},
		"snapshots": {set(map[string]string{"parent": "before"}), `cp-01 (VM 421) has snapshots, the last ` +
			`one "before": until they are deleted, Proxmox moves none of its disks and may refuse to ` +
			"migrate it; as root on node proxmox: qm delsnapshot 421 before"},
		"a node that is off": {func(s *emulator.Server) { s.SetOffline("proxmox", true) },
			"cp-01 (VM 421) on node proxmox cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Nodes: []string{"pve2", "proxmox"}})
			k, vm := asLeft()
			vm.Node = "proxmox"
			d.server.AddVM(vm)
			test.change(d.server)
			known := []gate.Known{k, {Type: "terraform_data"}}
			facts, err := Search{Client: d.client(t)}.Facts(soon(t), known)
			if err != nil || len(facts) != 1 {
				t.Fatal(facts, err)
			}
			got := strings.Join(facts[0].Lines("castle create blue"), "; ")
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" ||
				strings.Contains(got, "restart") != strings.Contains(test.want, "restart") {
				t.Errorf("got %q\nwant %q", got, test.want)
			}
		})
	}
}

// A machine that has moved by itself would be replaced by an empty one; one that the user wants elsewhere is.
func TestAMachineThatHasMovedStopsACreate(t *testing.T) {
	for name, test := range map[string]struct {
		now, configured, noted, inState string
		refused                         bool
	}{
		"it is where castle put it":                   {"proxmox", "proxmox", "proxmox", "proxmox", false},
		"it has moved":                                {"pve2", "proxmox", "proxmox", "proxmox", true},
		"it has moved, and a refresh has written it":  {"pve2", "proxmox", "proxmox", "pve2", true},
		"it has moved, and the configuration follows": {"pve2", "pve2", "proxmox", "proxmox", false},
		"the user wants it elsewhere":                 {"proxmox", "pve2", "proxmox", "proxmox", false},
		"nothing was noted":                           {"pve2", "proxmox", "", "proxmox", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
			k, vm := asLeft()
			vm.Node, k.MachineID.Node, k.Attributes["node_name"] = test.now, test.noted, test.inState
			d.server.AddVM(vm)
			c := check(t, d)
			c.node, c.ids = test.configured, map[string]int{"cp-01": 421}
			found, err := c.inspect(t.Context(), []gate.Known{k}, silent)
			if err != nil || len(found.Foreign) > 0 || len(found.MachineIDs) != 1 {
				t.Fatal(found, err)
			}
			want := []string{`to keep it there, set node_name = "pve2" for cp-01 in terraform.tfvars`,
				"or migrate it to node proxmox in Proxmox, and run the same command again"}
			if refused := len(found.Unusable) > 0; refused != test.refused ||
				refused && !slices.Equal(found.Unusable[0].Fixes, want) {
				t.Errorf("in the way: %+v", found.Unusable)
			}
			note := test.noted
			if test.now == test.configured {
				note = test.now
			}
			if got := found.MachineIDs[0].Node; got != note {
				t.Errorf("noted %q, want %q", got, note)
			}
		})
	}
}

func TestTheDisksThatAGuestDoesNotSeeAreCastles(t *testing.T) {
	for name, test := range map[string]struct{ efi, tpm, want string }{
		"as left": {"nvme:vm-421-disk-2,size=4M", "nvme:vm-421-disk-3,size=4M", ""},
		"lost":    {"nvme:vm-421-disk-2,size=4M", "", "cp-01 (VM 421) has lost its disk tpmstate0 (nvme:…)"},
		"exchanged": {"local-lvm:vm-421-disk-2", "nvme:vm-421-disk-3,size=4M",
			"cp-01 (VM 421) has the disk local-lvm:vm-421-disk-2 as efidisk0, and castle has made nvme:… " +
				"there"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{})
			k, vm := asLeft()
			vm.Node = "proxmox"
			vm.Config["efidisk0"], vm.Config["tpmstate0"] = test.efi, test.tpm
			d.server.AddVM(vm)
			on := []any{map[string]any{"datastore_id": "nvme"}}
			k.Attributes["efi_disk"], k.Attributes["tpm_state"] = on, on
			facts, err := Search{Client: d.client(t)}.Facts(soon(t), []gate.Known{k})
			if err != nil || len(facts) != 1 {
				t.Fatal(facts, err)
			}
			if got := strings.Join(facts[0].Lines("castle create blue"), "; "); got != test.want {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}

// Machines of one network are in one VLAN. Those of another network, or on another bridge, may be in any.
func TestAMachineInAnotherVLANThanTheOthersIsNamed(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	var all []gate.Known
	cards := map[int]string{421: "vmbr0", 422: "vmbr0", 423: "vmbr0,tag=20", 424: "vmbr1,tag=20"}
	for id, card := range cards {
		name := fmt.Sprintf("blue-%d", id)
		vm := ours(id, name)
		vm.Config["net0"] = "virtio=BC:24:11:00:00:01,bridge=" + card
		vm.Config["ipconfig0"] = fmt.Sprintf("ip=192.168.1.%d/24,gw=192.168.1.1", id-300)
		d.server.AddVM(vm)
		all = append(all, known(cp01, map[string]any{"vm_id": id, "name": name}))
	}
	facts, err := Search{Client: d.client(t)}.Facts(soon(t), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range facts {
		named := slices.Contains(f.Differs, "is on VLAN 20, and other machines of 192.168.1.0/24 on vmbr0 "+
			"of node proxmox are on VLAN none: they do not reach each other")
		if named != (f.ID == 423) {
			t.Errorf("VM %d: %q", f.ID, f.Differs)
		}
	}
}
