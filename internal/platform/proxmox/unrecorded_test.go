package proxmox

import (
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
)

func TestFileUser(t *testing.T) {
	const snippet, template = "local:snippets/blue.yaml", "local:import/blue.qcow2"
	mine := uuid(ours(421, "blue-cp-01"), "mine")
	with := func(vm emulator.VM, key, value string) emulator.VM {
		vm.Config[key] = value
		return vm
	}
	db := func() emulator.VM {
		return emulator.VM{ID: 500, Name: "db", Node: "pve2", Config: map[string]string{}}
	}
	for name, test := range map[string]struct {
		vm    emulator.VM
		files map[string]bool // whether the guest may use them
	}{
		"nobody":  {db(), map[string]bool{snippet: false, template: false}},
		"our own": {mine, map[string]bool{snippet: false, template: false}},
		"a namesake's": {uuid(ours(421, "blue-cp-01"), "theirs"),
			map[string]bool{snippet: true, template: true}},
		"another's":     {ours(441, "green-cp-01"), map[string]bool{snippet: false, template: false}},
		"as cloud-init": {with(db(), "cicustom", "user="+snippet+",meta=x"), map[string]bool{snippet: true}},
		"as a CD-ROM":   {with(db(), "ide2", snippet+",media=cdrom"), map[string]bool{snippet: true}},
	} {
		d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
		d.server.AddVM(test.vm)
		own := []platform.Object{{Kind: platform.Machine, VM: 421, UUID: "mine"}}
		for file, want := range test.files {
			user, err := d.client(t).FileUser(t.Context(), "blue", file, own)
			if err != nil || (user != "") != want {
				t.Errorf("%s: %s: used by %q, %v", name, file, user, err)
			}
		}
	}
	d := newDatacenter(t, emulator.Config{Nodes: []string{"proxmox", "pve2"}})
	d.server.AddVM(db())
	d.server.SetOffline("pve2", true)
	for file, want := range map[string]bool{snippet: true, template: false} { // castle cannot read it
		user, err := d.client(t).FileUser(t.Context(), "blue", file, nil)
		if err != nil || (user != "") != want {
			t.Errorf("%s: used by %q, %v", file, user, err)
		}
	}
}

func TestUnrecordedMachines(t *testing.T) {
	node := func(key string) string { return defaultResource + `["` + key + `"]` }
	values := gate.Values{"vm_ids": cty.MapVal(map[string]cty.Value{
		"cp-01": cty.NumberIntVal(421), "wk-01": cty.NumberIntVal(422),
	})}
	for name, test := range map[string]struct {
		vms      []emulator.VM
		known    []gate.Known
		lacks    bool
		machines []int
		unseen   []int
	}{
		"nothing is there": {lacks: true},
		"named and tagged, at any id": {
			vms:   []emulator.VM{ours(421, "blue-cp-01"), ours(430, "blue-wk-09")},
			lacks: true, machines: []int{421, 430},
		},
		"another cluster's, one without tags and a container": {
			vms: []emulator.VM{
				{ID: 421, Name: "bluebird-cp-01", Tags: []string{"bluebird", "castle"}},
				{ID: 422, Name: "blue-wk-01"},
				{ID: 423, Name: "blue-wk-02", Kind: "lxc", Tags: []string{"blue", "castle"}},
			},
			lacks: true,
		},
		"in the state": {
			vms: []emulator.VM{ours(421, "blue-cp-01"), ours(422, "blue-wk-01")},
			known: []gate.Known{known(node("cp-01"), map[string]any{"vm_id": float64(421)}),
				known(node("wk-01"), map[string]any{"vm_id": float64(422)})},
		},
		"in the state with an older id": {
			vms:   []emulator.VM{ours(431, "blue-cp-01")},
			known: []gate.Known{known(node("cp-01"), map[string]any{"vm_id": float64(431)})},
			lacks: true, // wk-01
		},
		"recorded before it was created": {
			vms: []emulator.VM{ours(421, "blue-cp-01"), ours(422, "blue-wk-01")},
			known: []gate.Known{noted(gate.Known{Address: node("cp-01")}, "421", "u-1"),
				{Address: node("wk-01")}},
		},
		"a part is in the state": {
			vms:   []emulator.VM{ours(421, "blue-cp-01"), ours(422, "blue-wk-01")},
			known: []gate.Known{known(node("cp-01"), map[string]any{"vm_id": float64(421)})},
			lacks: true, machines: []int{422},
		},
		"a copy under another name": {
			vms: []emulator.VM{uuid(ours(421, "blue-cp-01"), "u-1"), uuid(emulator.VM{ID: 900,
				Name: "restored", Config: map[string]string{}}, "u-1"), {ID: 901, Name: "db"}},
			known: []gate.Known{
				noted(known(node("cp-01"), map[string]any{"vm_id": float64(421)}), "421", "u-1"),
				known(node("wk-01"), map[string]any{"vm_id": float64(422)})},
			machines: []int{900},
		},
		"the token may not see it": {
			vms:   []emulator.VM{{ID: 422, Name: "blue-wk-01", Hidden: true}},
			lacks: true, unseen: []int{422},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{})
			for _, vm := range test.vms {
				d.server.AddVM(vm)
			}
			if lacks := lacksMachines(values, test.known); lacks != test.lacks {
				t.Errorf("the record lacks machines: %v", lacks)
			}
			guests, unseen, err := d.client(t).UnrecordedMachines(soon(t), "blue", values, test.known)
			var machines []int
			for _, g := range guests {
				machines = append(machines, g.ID)
			}
			if err != nil || !slices.Equal(machines, test.machines) || !slices.Equal(unseen, test.unseen) {
				t.Errorf("machines %d, unseen %d, %v; want %d, %d", machines, unseen, err, test.machines,
					test.unseen)
			}
			d.requests.mu.Lock()
			defer d.requests.mu.Unlock()
			if lists := d.requests.count["cluster/resources"]; lists != 1 {
				t.Errorf("%d lists", lists)
			}
		})
	}
}

func TestUnrecordedMachinesNeedAnAnswer(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.Fail(emulator.Fault{Method: "GET", Path: "cluster/resources", Code: 500, Text: "got timeout"})
	guests, _, err := d.client(t).UnrecordedMachines(soon(t), "blue", gate.Values{}, nil)
	if err == nil {
		t.Errorf("no answer proves that there are %d machines", len(guests))
	}
}
