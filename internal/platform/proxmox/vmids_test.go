package proxmox

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

const cp01 = `proxmox_virtual_environment_vm.node["cp-01"]`

// check is the preflight of a cluster named blue with two machines.
func check(t *testing.T, d datacenter) *vmCheck {
	t.Helper()
	return &vmCheck{
		client: d.client(t), resource: defaultResource, ids: map[string]int{"cp-01": 421, "wk-01": 431},
		names:    map[string]string{"cp-01": "blue-cp-01", "wk-01": "blue-wk-01"},
		tags:     []string{"castle", "Blue"},
		interval: time.Millisecond, timeout: time.Minute,
	}
}

// silent discards the reports of a preflight.
func silent(string) {}

func known(address string, attributes map[string]any) gate.Known {
	return gate.Known{Address: address, Type: "proxmox_virtual_environment_vm", Attributes: attributes}
}

func ours(id int, name string) emulator.VM {
	return emulator.VM{
		ID: id, Name: name, Tags: []string{"blue", "castle"}, Running: true,
		Config: map[string]string{"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"},
	}
}

func uuid(vm emulator.VM, uuid string) emulator.VM {
	vm.Config["smbios1"] = "uuid=" + uuid + ",family=Zm9v"
	return vm
}

// noted returns a machine with castle's recorded identity.
func noted(k gate.Known, id, uuid string) gate.Known {
	k.MachineID = gate.MachineID{Address: k.Address, ID: id, UUID: uuid}
	return k
}

func TestVMIDs(t *testing.T) {
	for name, test := range map[string]struct {
		vms     []emulator.VM
		known   []gate.Known
		change  func(*vmCheck)
		foreign string   // What; empty if nothing is in the way
		doubt   bool     // nothing tells whose it is, so a destroy refuses
		mark    string   // what was noted of what the state knows
		hint    []string // parts of why and of the ways out
		own     string   // "address id" of what would make it castle's own
		taken   string   // the address that the state mistakes it for
		ours    string   // "address id"
		present string
	}{
		"nothing there": {},
		"a neighbour on another id": {
			vms: []emulator.VM{{ID: 420, Name: "prod-database"}},
		},
		"a ghost without tags": {
			vms:     []emulator.VM{{ID: 421, Name: "prod-database", Running: true}},
			foreign: `VM 421 "prod-database" on node proxmox, running, no tags`,
			hint: []string{`the name "blue-cp-01"`, "give cp-01 another VM id",
				"remove it in Proxmox"},
		},
		"a ghost that has run for long, in a pool": {
			vms: []emulator.VM{{
				ID: 421, Name: "prod-database", Pool: "db", Tags: []string{"prod"}, Running: true,
				Started: time.Now().Add(-12*24*time.Hour - time.Minute),
			}},
			foreign: `VM 421 "prod-database" on node proxmox, running for 12d, pool db, tags: prod`,
		},
		"the right tags under another name": {
			vms:     []emulator.VM{ours(421, "green-cp-01")},
			foreign: `VM 421 "green-cp-01" on node proxmox, running, tags: blue, castle`,
			hint:    []string{`expected the name "blue-cp-01"`},
			own:     cp01 + " proxmox/421",
		},
		"the right name with one tag missing": {
			vms:     []emulator.VM{{ID: 421, Name: "blue-cp-01", Tags: []string{"castle"}}},
			foreign: `VM 421 "blue-cp-01" on node proxmox, stopped, tags: castle`,
			hint:    []string{"expected the tags Blue"},
			own:     cp01 + " proxmox/421",
		},
		"our own, on a node where the stage does not want it": {
			vms:     []emulator.VM{ours(421, "blue-cp-01")},
			change:  func(c *vmCheck) { c.node = "pve2" },
			foreign: `VM 421 "blue-cp-01" on node proxmox, running, tags: blue, castle`,
			hint:    []string{"expected node pve2"},
			own:     cp01 + " proxmox/421",
		},
		"the name, the tags and the node of our own, and no uuid is known": {
			vms:     []emulator.VM{ours(421, "blue-cp-01")},
			change:  func(c *vmCheck) { c.node, c.nodes = "pve2", map[string]string{"cp-01": "proxmox"} },
			foreign: `VM 421 "blue-cp-01" on node proxmox, running, tags: blue, castle`,
			hint: []string{"no uuid is known here that proves it castle's own",
				"give cp-01 another VM id"},
			own:   cp01 + " proxmox/421",
			doubt: true,
		},
		"all of our own but the uuid, which derives from another key": {
			vms:     []emulator.VM{uuid(ours(421, "blue-cp-01"), values.UUIDOf("their key", "blue-cp-01"))},
			change:  func(c *vmCheck) { c.derives, c.key = true, "our key" },
			foreign: `VM 421 "blue-cp-01" on node proxmox, running, tags: blue, castle`,
			hint: []string{"expected the uuid " + values.UUIDOf("our key", "blue-cp-01"),
				"it may belong to the same cluster of another state"},
		},
		"the uuid that derives from our key, under another name and without tags": {
			vms: []emulator.VM{uuid(emulator.VM{ID: 421, Name: "renamed", Config: map[string]string{}},
				values.UUIDOf("our key", "blue-cp-01"))},
			change:  func(c *vmCheck) { c.derives, c.key, c.node = true, "our key", "pve2" },
			ours:    cp01 + " proxmox/421",
			present: `VM 421 "renamed" on node proxmox`,
		},
		"a record is more than the key": {
			vms:     []emulator.VM{uuid(ours(421, "blue-cp-01"), values.UUIDOf("our key", "blue-cp-01"))},
			known:   []gate.Known{noted(gate.Known{Address: cp01}, "421", "planned")},
			change:  func(c *vmCheck) { c.derives, c.key = true, "our key" },
			foreign: `VM 421 "blue-cp-01" on node proxmox, running, tags: blue, castle`,
		},
		"a cluster's own on another machine's id": {
			vms:     []emulator.VM{ours(421, "blue-wk-01")},
			foreign: `VM 421 "blue-wk-01" on node proxmox, running, tags: blue, castle`,
			own:     cp01 + " proxmox/421",
		},
		"a cluster's own that is protected": {
			vms: []emulator.VM{{ID: 421, Name: "blue-wk-01", Tags: []string{"blue", "castle"},
				Protection: true}},
			foreign: `VM 421 "blue-wk-01" on node proxmox, stopped, tags: blue, castle, protected`,
			own:     cp01 + " proxmox/421",
		},
		"another cluster's own": {
			vms:     []emulator.VM{{ID: 421, Name: "green-cp-01", Tags: []string{"castle", "green"}}},
			foreign: `VM 421 "green-cp-01" on node proxmox, stopped, tags: castle, green`,
		},
		"our own, unknown to the state": {
			vms:     []emulator.VM{uuid(ours(421, "blue-cp-01"), "planned")},
			known:   []gate.Known{noted(gate.Known{Address: cp01}, "421", "planned")},
			ours:    cp01 + " proxmox/421",
			present: `VM 421 "blue-cp-01" on node proxmox`,
		},
		"a name is the key unless it is given": {
			vms:     []emulator.VM{uuid(ours(421, "cp-01"), values.UUIDOf("our key", "cp-01"))},
			change:  func(c *vmCheck) { c.names, c.derives, c.key = nil, true, "our key" },
			ours:    cp01 + " proxmox/421",
			present: `VM 421 "cp-01" on node proxmox`,
		},
		"a container": {
			vms: []emulator.VM{{ID: 421, Name: "blue-cp-01", Kind: "lxc",
				Tags: []string{"blue", "castle"}}},
			foreign: `container 421 "blue-cp-01" on node proxmox, stopped, tags: blue, castle`,
			hint: []string{"a container, not a virtual machine", "give cp-01 another VM id",
				"remove it in Proxmox"},
		},
		"a machine that the token may not see": {
			vms:     []emulator.VM{{ID: 421, Name: "secret", Hidden: true}},
			foreign: `VM 421, which exists but is invisible to this API token`,
			hint:    []string{"VM.Audit on /vms/421", "give cp-01 another VM id"},
		},
		"a known machine that the token may no longer see": {
			vms:     []emulator.VM{{ID: 421, Name: "blue-cp-01", Hidden: true}},
			known:   []gate.Known{known(cp01, map[string]any{"vm_id": 421.0, "name": "blue-cp-01"})},
			foreign: `VM 421, which exists but is invisible to this API token`,
		},
		"a known machine": {
			vms: []emulator.VM{ours(421, "blue-cp-01")},
			known: []gate.Known{known(cp01, map[string]any{"vm_id": json.Number("421"),
				"name": "blue-cp-01"})},
			present: `VM 421 "blue-cp-01" on node proxmox`,
		},
		"a known machine that is gone": {
			known: []gate.Known{known(cp01, map[string]any{"vm_id": 421})},
		},
		"a known machine that the configuration now calls otherwise": {
			vms: []emulator.VM{{ID: 421, Name: "old-name", Tags: []string{"old"}}},
			known: []gate.Known{known(cp01, map[string]any{"vm_id": 421, "name": "old-name",
				"tags": []any{"old"}})},
			present: `VM 421 "old-name" on node proxmox`,
		},
		"a known id under which another machine stands": {
			vms:     []emulator.VM{{ID: 421, Name: "prod-database", Running: true}},
			known:   []gate.Known{known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01"})},
			foreign: `VM 421 "prod-database" on node proxmox, running, no tags`,
			hint:    []string{`the state knows this id as "blue-cp-01"`},
			taken:   cp01,
		},
		"a known id under which a machine of that very name was made anew": {
			vms: []emulator.VM{ours(421, "blue-cp-01")},
			known: []gate.Known{known(cp01, map[string]any{
				"vm_id": 421, "name": "blue-cp-01", "mac_addresses": []any{"bc:24:11:ff:ff:ff"},
			})},
			foreign: `VM 421 "blue-cp-01" on node proxmox, running, tags: blue, castle`,
			hint:    []string{"another machine (bc:24:11:ff:ff:ff)"},
			taken:   cp01,
		},
		"a known id under which another machine with that very address stands": {
			vms: []emulator.VM{uuid(ours(421, "blue-cp-01"), "0A")},
			known: []gate.Known{noted(known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01",
				"mac_addresses": []any{"BC:24:11:00:00:01"}}), "421", "0b")},
			foreign: `VM 421 "blue-cp-01" on node proxmox, running, tags: blue, castle`,
			hint:    []string{"the state knows this id as another machine (uuid 0b, and this one's is 0a)"},
			taken:   cp01,
		},
		"a known machine with another network card": {
			vms: []emulator.VM{uuid(ours(421, "blue-cp-01"), "0A")},
			known: []gate.Known{noted(known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01",
				"mac_addresses": []any{"BC:24:11:FF:FF:FF"}}), "421", "0a")},
			present: `VM 421 "blue-cp-01" on node proxmox`,
			mark:    cp01 + " 421 0a",
		},
		"a known machine that was noted under another id": {
			vms: []emulator.VM{uuid(ours(421, "blue-cp-01"), "0A")},
			known: []gate.Known{noted(known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01"}),
				"420", "0b")},
			present: `VM 421 "blue-cp-01" on node proxmox`,
			mark:    cp01 + " 421 0a",
		},
		"a known id under which another machine stands than the configuration's uuid says": {
			vms: []emulator.VM{uuid(ours(421, "blue-cp-01"), "0A")},
			known: []gate.Known{known(cp01, map[string]any{
				"vm_id": 421, "name": "blue-cp-01", "smbios": []any{map[string]any{"uuid": "0B"}},
			})},
			foreign: `VM 421 "blue-cp-01" on node proxmox, running, tags: blue, castle`,
			taken:   cp01,
		},
		"a known machine renamed by hand": {
			vms: []emulator.VM{ours(421, "my-node")},
			known: []gate.Known{known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01",
				"mac_addresses": []any{"bc:24:11:00:00:01"}})},
			present: `VM 421 "my-node" on node proxmox`,
		},
		"a known machine that lost its tags": {
			vms:     []emulator.VM{{ID: 421, Name: "blue-cp-01"}},
			known:   []gate.Known{known(cp01, map[string]any{"vm_id": 421, "name": "blue-cp-01"})},
			foreign: `VM 421 "blue-cp-01" on node proxmox, stopped, no tags`,
			hint:    []string{"no longer tagged castle, Blue"},
			taken:   cp01,
		},
		"a machine that only the state knows": {
			vms: []emulator.VM{ours(499, "blue-cp-09")},
			known: []gate.Known{known(`proxmox_virtual_environment_vm.node["cp-09"]`,
				map[string]any{"vm_id": 499, "name": "blue-cp-09"})},
			present: `VM 499 "blue-cp-09" on node proxmox`,
		},
		"a recycled id that only the state knows": {
			vms: []emulator.VM{{ID: 499, Name: "prod-database"}},
			known: []gate.Known{known(`proxmox_virtual_environment_vm.node["cp-09"]`,
				map[string]any{"vm_id": 499, "name": "blue-cp-09"})},
			foreign: `VM 499 "prod-database" on node proxmox, stopped, no tags`,
			taken:   `proxmox_virtual_environment_vm.node["cp-09"]`,
		},
		"an instance of another resource": {
			vms: []emulator.VM{{ID: 421, Name: "jump-host"}},
			known: []gate.Known{known(`proxmox_virtual_environment_vm.jump["cp-01"]`,
				map[string]any{"vm_id": 421, "name": "jump-host"})},
			foreign: `VM 421 "jump-host" on node proxmox, stopped, no tags`,
		},
		"our own on a new id, while the state has the key under another": {
			vms:     []emulator.VM{ours(421, "blue-cp-01")},
			known:   []gate.Known{known(cp01, map[string]any{"vm_id": 420, "name": "blue-cp-01"})},
			foreign: `VM 421 "blue-cp-01" on node proxmox, running, tags: blue, castle`,
			hint:    []string{cp01 + " has VM 420 in the state"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{})
			for _, vm := range test.vms {
				d.server.AddVM(vm)
			}
			c := check(t, d)
			if test.change != nil {
				test.change(c)
			}
			found, err := c.inspect(t.Context(), test.known, silent)
			if err != nil {
				t.Fatal(err)
			}
			var foreign, hint, own, taken, imports, ids string
			for _, f := range found.Foreign {
				foreign, hint, taken = foreign+f.What, hint+f.Why+strings.Join(f.Fixes, ""),
					taken+f.ConflictsWith
				if f.Unverified && f.Marked != test.doubt {
					t.Errorf("nobody knows whose it is: %v, want %v", f.Marked, test.doubt)
				}
				if f.Import != nil {
					own += f.Import.Address + " " + f.Import.ID
				}
			}
			for _, i := range found.Ours {
				imports += i.Import.Address + " " + i.Import.ID
				if i.AsForeign.ConflictsWith != "" || len(i.AsForeign.Fixes) == 0 {
					t.Errorf("while nobody claims it: %+v", i.AsForeign)
				}
			}
			for _, m := range found.MachineIDs {
				ids += m.Address + " " + m.ID + " " + m.UUID
			}
			if ids != test.mark {
				t.Errorf("ids %q, want %q", ids, test.mark)
			}
			if foreign != test.foreign {
				t.Errorf("foreign: got  %s\nwant %s", foreign, test.foreign)
			}
			for _, part := range test.hint {
				if !strings.Contains(hint, part) {
					t.Errorf("hint %q lacks %q", hint, part)
				}
			}
			if own != test.own || taken != test.taken {
				t.Errorf("could be ours as %q, mistaken for %q; want %q, %q", own, taken, test.own,
					test.taken)
			}
			if imports != test.ours {
				t.Errorf("ours: got %s, want %s", imports, test.ours)
			}
			if present := strings.Join(found.Present, "; "); present != test.present {
				t.Errorf("present: got %s, want %s", present, test.present)
			}
			for _, r := range d.server.Requests() {
				if r.Method != "GET" {
					t.Errorf("the preflight sent %s %s", r.Method, r.Path)
				}
			}
		})
	}
}
