package proxmox

import (
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// planned is what castle has recorded before Terraform created cp-01.
func plannedMachine() gate.Known { return noted(gate.Known{Address: cp01}, "421", "planned") }

func TestARecordedUUIDDecides(t *testing.T) {
	inState := known(cp01, map[string]any{
		"vm_id": 421, "name": "blue-cp-01", "mac_addresses": []string{"BC:24:11:00:00:01"},
		"smbios": []any{map[string]any{"uuid": "theirs"}}, // as the provider has read it
	})
	replacing := plannedMachine()
	replacing.MachineID.Replaces = "before"
	for name, test := range map[string]struct {
		vm      emulator.VM
		known   gate.Known
		foreign string // Why; empty for castle's own
	}{
		"untracked, its own": {uuid(ours(421, "blue-cp-01"), "planned"), plannedMachine(), ""},
		"untracked, of another uuid": {uuid(ours(421, "blue-cp-01"), "theirs"), plannedMachine(),
			"uuid planned, and this one's is theirs"},
		"untracked, without a uuid": {ours(421, "blue-cp-01"), plannedMachine(),
			"uuid planned, and this one has none"},
		"untracked, recorded for another id": {uuid(ours(421, "blue-cp-01"), "theirs"),
			noted(gate.Known{Address: cp01}, "499", "planned"), "no uuid is known here that proves it"},
		"in the state, its own": {uuid(ours(421, "blue-cp-01"), "planned"),
			noted(inState, "421", "planned"), ""},
		"in the state, which the provider has read from another": {uuid(ours(421, "blue-cp-01"), "theirs"),
			noted(inState, "421", "planned"), "uuid planned, and this one's is theirs"},
		"in the state, without a uuid": {ours(421, "blue-cp-01"), noted(inState, "421", "planned"),
			"uuid planned, and this one has none"},
		"not yet replaced": {uuid(ours(421, "blue-cp-01"), "before"),
			func() gate.Known { k := inState; k.MachineID = replacing.MachineID; return k }(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{})
			d.server.AddVM(test.vm)
			c := check(t, d)
			found, err := c.inspect(t.Context(), []gate.Known{test.known}, silent)
			if err != nil {
				t.Fatal(err)
			}
			read, err := c.look(t.Context(), test.known)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.foreign == "" && (len(found.Foreign) > 0 || !read.Own):
				t.Errorf("foreign: %+v, read as %+v", found.Foreign, read)
			case test.foreign == "":
			case len(found.Foreign) != 1 || !strings.Contains(found.Foreign[0].Why, test.foreign):
				t.Errorf("not foreign: %+v", found)
			case test.known.MachineID.ID != "421": // the provider creates it, and no uuid was planned
			case read.Foreign == nil || read.Own:
				t.Errorf("read as its own: %+v", read)
			}
			if len(found.Foreign) > 0 {
				if len(found.Ours)+len(found.MachineIDs) > 0 {
					t.Errorf("a foreign machine is noted or imported: %+v", found)
				}
			}
		})
	}
}

// Without a recorded uuid, what was read may become the record only if name and tags are the expected ones.
func TestAnUnexpectedMachineIsNotNoted(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(uuid(ours(421, "prod-database"), "theirs"))
	inState := known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01",
		"mac_addresses": []string{"BC:24:11:00:00:01"}})
	found, err := check(t, d).inspect(t.Context(), []gate.Known{inState}, silent)
	if err != nil || len(found.MachineIDs) > 0 {
		t.Errorf("noted %+v, %v", found.MachineIDs, err)
	}
}

func TestAMachineInCreationIsNotJudged(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	c := check(t, d)
	if read, err := c.look(t.Context(), plannedMachine()); err != nil || read.Own || read.Foreign != nil {
		t.Errorf("nothing there: %+v, %v", read, err)
	}
	vm := ours(421, "")
	vm.Lock, vm.Tags = "create", nil
	d.server.AddVM(vm)
	if read, err := c.look(t.Context(), plannedMachine()); err != nil || read.Own || read.Foreign != nil {
		t.Errorf("in creation: %+v, %v", read, err)
	}
	vm = ours(421, "blue-cp-01")
	vm.Hidden = true
	d.server.AddVM(vm)
	read, err := c.look(t.Context(), plannedMachine())
	if err != nil || read.Own || read.Foreign == nil || !read.Unsettled {
		t.Errorf("not in its pool yet: %+v, %v", read, err)
	}
}

// A nuke compares with the record, too.
func TestNukeSparesAMachineOfAnotherUUID(t *testing.T) {
	o := Ownership{Range: platform.Range{From: 421, To: 421}, Known: []platform.RecordedMachine{{
		Cluster: "blue/proxmox", Machine: platform.Object{Kind: platform.Machine, VM: 421, UUID: "planned",
			Was: "before", MACs: []string{"BC:24:11:00:00:01"}}}}}
	guest := func(smbios string) Guest {
		return Guest{ID: 421, Kind: "qemu", Name: "blue-cp-01", Config: Config{
			"tags": "blue;castle", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "smbios1": smbios}}
	}
	for smbios, refused := range map[string]bool{
		"base64=1,uuid=planned": false, "uuid=before": false, "uuid=theirs": true, "": true,
	} {
		if why := o.Refusals(guest(smbios)); len(why) > 0 != refused {
			t.Errorf("smbios1 %q: refused for %q", smbios, why)
		}
	}
}
