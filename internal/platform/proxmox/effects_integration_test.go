//go:build integration

package proxmox

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

const worker = `proxmox_virtual_environment_vm.node["worker-01"]`

// effectsOf is what castle says of the changes of a machine that a plan has.
func (r root) effectsOf(address string) (all []effect.Effect) {
	r.t.Helper()
	r.plan()
	var plan tfjson.Plan
	if err := json.Unmarshal([]byte(r.must("show", "-json", "plan")), &plan); err != nil {
		r.t.Fatal(err)
	}
	for _, c := range plan.ResourceChanges {
		if was, is := c.Change.Before.(map[string]any); is && c.Address == address {
			differences := planned.ChangedAttributes(&plan)[address].Differences
			all = Platform{}.Effects(was, c.Change.Actions.Replace(), differences)
		}
	}
	return slices.DeleteFunc(all, func(e effect.Effect) bool { return e.Kind == effect.None })
}

// What castle says of a change is what the provider and Proxmox make of it on a machine that runs.
func TestEffectsAreThoseOfTheRealProvider(t *testing.T) {
	d := newDatacenter(t, hardware())
	r := newStage(t, d, everything)
	r.must(apply...)
	for _, test := range []struct {
		name    string
		changes []string // strings.NewReplacer's arguments
		effect  effect.Kind
		effects int
		pending []string // options that wait for the next start
		fails   string
		remains bool // the provider never makes all of it
		final   bool // nothing takes it back
	}{
		{name: "harmless", changes: []string{"cpu_units       = 200", "cpu_units = 300",
			"= 4096\n    machine", "= 6144\n    machine", "up_delay = 10, ", "",
			"{},\n", "{},\n{ bridge = \"vmbr1\" },\n", "scsi2 =", "scsi3 = { size = 3 }, scsi2 =",
			"base-9000-disk-0", "base-9001-disk-0"}},
		{name: "what a start applies", changes: []string{`"x86-64-v3"`, `"host"`,
			"numa            = true", "", "= 4096\n    machine", "= 0\n    machine", `"q35"`,
			`"pc-q35-9.2"`, `"nic"`, `"gpu"`,
			"10.0.20.5", "10.0.20.6"}, effect: effect.Pending, effects: 6,
			pending: []string{"balloon", "cpu", "hostpci1", "machine", "numa"}},
		{name: "a PCI device less", changes: []string{`, { mapping = "nic", pcie = false }`, ""},
			effect: effect.Pending, effects: 1, pending: []string{"hostpci1"}},
		{name: "interruptions", changes: []string{`bridge      = "vmbr0"`, `bridge = "vmbr1"`, "= 30", "= 31",
			"= 1400", "= 1300", `{ mapping = "zigbee", usb3 = true }`, ""},
			effect: effect.Interrupts, effects: 6},
		{name: "a card less", changes: []string{"{},\n", ""}, effect: effect.Interrupts, effects: 1},
		{name: "a disk less", changes: []string{"scsi2 = { size = 5 },", ""}, effect: effect.LosesData,
			effects: 1},
		{name: "another datastore", changes: []string{`size = 7, datastore_id = "fast"`, `size = 7`},
			effect: effect.Impossible, effects: 1, fails: "move disks between datastores"},
		{name: "another firmware", changes: []string{`"ovmf"`, `"seabios"`}, effect: effect.Replaces,
			effects: 2, pending: []string{"bios"}, remains: true},
		{name: "a disk grows", changes: []string{"size = 5", "size = 6"}, final: true},
		// The state then lacks a TPM that was not removed.
		{name: "no TPM", changes: []string{"tpm             = true", "", "size = 5", "size = 6"},
			effect: effect.Replaces, effects: 1, fails: "TPM device", final: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := root{t, r.dir, r.env}
			r.revalue(d, strings.NewReplacer(test.changes...).Replace(everything))
			started := d.vm(t, 431).Started
			effects := r.effectsOf(worker)
			other := func(e effect.Effect) bool { return e.Kind != test.effect }
			if slices.ContainsFunc(effects, other) || len(effects) != test.effects {
				t.Errorf("castle says %v\n%s", effects, r.must("show", "-no-color", "plan"))
			}
			out, err := r.run("apply", "-input=false", "-no-color", "plan")
			if (err != nil) != (test.fails != "") || !strings.Contains(out, test.fails) {
				t.Fatalf("%v\n%s", err, out)
			}
			vm := d.vm(t, 431)
			if got := slices.Sorted(maps.Keys(vm.Pending)); !slices.Equal(got, test.pending) {
				t.Errorf("%v waits for a start, want %v", got, test.pending)
			}
			if vm.Started != started {
				t.Error("the provider has started it")
			}
			if changes := r.plan(); test.fails == "" && len(changes) > 0 && !test.remains {
				t.Errorf("afterwards a plan changes %v\n%s", changes, r.must("show", "-no-color", "plan"))
			}
			if !test.final {
				r.revalue(d, everything)
				r.must(apply...)
				d.cycle(t, 431)
			}
		})
	}
}

// cycle stops a machine and starts it, which applies what waits for its start.
func (d datacenter) cycle(t *testing.T, id int) {
	t.Helper()
	for _, verb := range []string{"stop", "start"} {
		path := fmt.Sprintf("nodes/proxmox/qemu/%d/status/%s", id, verb)
		if _, err := d.client(t).session.Call(t.Context(), http.MethodPost, path, nil); err != nil {
			t.Fatal(err)
		}
		d.server.Idle()
	}
}
