package proxmox

import (
	"maps"
	"slices"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestADiskThatAMachineHasLostIsNamed(t *testing.T) {
	disk := func(drive, path string) any {
		return map[string]any{"interface": drive, "datastore_id": "local-lvm", "path_in_datastore": path}
	}
	disks := []any{disk("scsi0", "vm-421-disk-0"), disk("scsi1", "vm-421-disk-1")}
	inState := known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01", "disk": disks,
		"mac_addresses": []string{"BC:24:11:00:00:01"}})
	lost := noted(known(cp01, nil), "421", "11111111-1111-4111-8111-111111111111")
	const system, data, attach = "local-lvm:vm-421-disk-0,size=8G", "local-lvm:vm-421-disk-1",
		", and an empty one would replace it; to attach it again, as root on node proxmox: "
	for name, test := range map[string]struct {
		options map[string]string
		volume  string // that exists without an option
		known   []gate.Known
		want    []string
	}{
		"none": {options: map[string]string{"scsi0": system, "scsi1": data}, known: []gate.Known{inState}},
		"on another storage since, the old one left": {
			options: map[string]string{"scsi0": system, "scsi1": "fast:vm-421-disk-0", "unused0": data},
			known:   []gate.Known{inState},
			want: []string{"disk " + data + " of VM 421 is detached (unused0)" +
				attach + "qm set 421 --scsi1 " + data}},
		"detached": {options: map[string]string{"scsi0": system, "unused0": data},
			known: []gate.Known{inState},
			want: []string{"disk " + data + " of VM 421 is detached (unused0)" +
				attach + "qm set 421 --scsi1 " + data}},
		"detached, and the state has lost it": {
			options: map[string]string{"scsi0": system, "unused3": "local-lvm:vm-421-disk-7",
				"smbios1": "uuid=" + lost.MachineID.UUID},
			known: []gate.Known{lost},
			want: []string{"disk local-lvm:vm-421-disk-7 of VM 421 is detached (unused3)" +
				attach + "qm set 421 --scsiN local-lvm:vm-421-disk-7"}},
		"attached elsewhere": {options: map[string]string{"scsi0": system, "virtio4": data + ",ssd=1"},
			known: []gate.Known{inState},
			want: []string{"disk " + data + " of VM 421 is attached as virtio4 instead of scsi1" +
				attach + "qm set 421 --delete virtio4 && qm set 421 --scsi1 " + data}},
		"cut out of the file of its configuration": {options: map[string]string{"scsi0": system},
			volume: data, known: []gate.Known{inState},
			want: []string{"disk " + data + " of VM 421 is in none of its options" +
				attach + "qm set 421 --scsi1 " + data}},
		"deleted": {options: map[string]string{"scsi0": system}, known: []gate.Known{inState}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{})
			vm := ours(421, "blue-cp-01")
			maps.Copy(vm.Config, test.options)
			d.server.AddVM(vm)
			if test.volume != "" {
				d.server.AddDisk(emulator.Disk{Volume: test.volume, Owner: 421, Content: "images"})
			}
			found, err := check(t, d).inspect(t.Context(), test.known, silent)
			if err != nil || len(found.Foreign) > 0 {
				t.Fatal(found.Foreign, err)
			}
			var got []string
			for _, one := range found.Detached {
				if got = append(got, one.Text); one.Address != cp01 {
					t.Errorf("of %s", one.Address)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
