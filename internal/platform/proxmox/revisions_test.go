package proxmox

import (
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/revision"
	terraform "github.com/ephemeral-castle/castle/internal/state"
)

// stageOf is a stage with the machine, the image and the snippet of state.
func (d datacenter) stageOf() revision.Stage {
	s := &terraform.State{}
	for _, k := range state() {
		s.Resources = append(s.Resources, terraform.Resource{
			Address: k.Address, Type: k.Type, Mode: "managed", Attributes: k.Attributes,
		})
	}
	return revision.Stage{State: s, Preflights: map[string]gate.Values{PreflightVMIDs: {
		"endpoint": cty.StringVal(d.endpoint), "api_token": cty.StringVal(token),
		"ca_file": cty.StringVal(d.ca),
	}}}
}

// changesOf compares the objects of the stage with those recorded before.
func changesOf(t *testing.T, s revision.Stage, recorded []revision.Object) (all []string) {
	t.Helper()
	now, err := Revisions().Read(soon(t), s, recorded)
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range revision.Compare(recorded, now) {
		all = append(all, difference.String())
	}
	return all
}

func TestRevisionsChangeWithMachinesAndFiles(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(machine421())
	d.server.AddDisk(image())
	s := d.stageOf()
	recorded, err := Revisions().Read(soon(t), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(recorded) != 3 {
		t.Fatalf("recorded %+v", recorded)
	}
	absent := []string{"snippet local:snippets/blue.yaml is absent"}
	if got := changesOf(t, s, recorded); !slices.Equal(got, absent) {
		t.Errorf("nothing has changed, and the snippet never existed: %q", got)
	}
	recorded = recorded[:2]
	for _, change := range []struct {
		do   func()
		want string
	}{
		{func() { d.server.SetProtection(421, true) }, "VM 421 blue-cp-01 has changed"},
		{func() { d.server.SetProtection(421, false) }, ""},
		{func() { d.server.PowerOff(421) }, "VM 421 blue-cp-01 has changed"},
		{func() { d.server.RemoveVM(421) }, "VM 421 blue-cp-01 is absent"},
		{func() { d.server.AddVM(machine421()) }, ""},
		{func() { d.server.RemoveDisk("proxmox", image().Volume) }, "image " + image().Volume + " is absent"},
		{func() { smaller := image(); smaller.Size = 1; d.server.AddDisk(smaller) },
			"image " + image().Volume + " has changed"},
	} {
		change.do()
		if got := strings.Join(changesOf(t, s, recorded), "; "); got != change.want {
			t.Errorf("differences: %q, want %q", got, change.want)
		}
	}
}

func TestAPendingChangeThatTakesEffectIsNoDrift(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	vm := machine421()
	vm.Running, vm.Pending = true, map[string]string{"memory": "8192", "cpu": "host"}
	d.server.AddVM(vm)
	s := d.stageOf()
	recorded, err := Revisions().Read(soon(t), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	vm.Config["memory"], vm.Config["cpu"], vm.Pending = "8192", "host", nil
	d.server.AddVM(vm)
	if got := changesOf(t, s, recorded); slices.ContainsFunc(got, func(text string) bool {
		return strings.HasPrefix(text, "VM ")
	}) {
		t.Errorf("after the start: %q", got)
	}
}

func TestRevisionsThatCannotBeReadAreAnError(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(machine421())
	s := d.stageOf()
	recorded, err := Revisions().Read(soon(t), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.server.SetToken("castle@pve!other=5b0c2a6e-8f2b-4f0a-9d55-0d3c1e8a7f21")
	if _, err := Revisions().Read(soon(t), s, recorded); err == nil {
		t.Error("a refused token shows a difference")
	}
	s.Preflights = nil
	if _, err := Revisions().Read(soon(t), s, recorded); err == nil {
		t.Error("without a datacenter nothing differs")
	}
}
