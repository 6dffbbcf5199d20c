package effects

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// attributeFacts and blockFacts are the parts of a provider's recorded schema.
type attributeFacts struct {
	Type               any
	Optional, Required bool
}

type blockFacts struct {
	Attributes map[string]attributeFacts
	BlockTypes map[string]struct{ Block blockFacts } `json:"block_types"`
}

// settable lists the paths that a module can set.
func settable(at string, b blockFacts) (all []string) {
	for name, a := range b.Attributes {
		if a.Optional || a.Required {
			all = append(all, at+name)
			for field := range objectOf(a.Type) {
				all = append(all, at+name+"."+field)
			}
		}
	}
	for name, nested := range b.BlockTypes {
		all = append(append(all, at+name), settable(at+name+".", nested.Block)...)
	}
	return all
}

// objectOf returns the fields of a list's objects: ["list", ["object", {…}]].
func objectOf(typ any) map[string]any {
	list, _ := typ.([]any)
	if len(list) == 2 {
		if fields, is := list[1].(map[string]any); is {
			return fields
		}
		return objectOf(list[1])
	}
	return nil
}

// Every argument of the real provider's machine has a row: one without counts as a replacement.
func TestEveryArgumentOfAMachineHasAnEffect(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "lab", "schemas", "bpg-proxmox.json"))
	if err != nil {
		t.Fatal(err)
	}
	var facts struct {
		Resources map[string]struct{ Block blockFacts } `json:"resource_schemas"`
	}
	if err := json.Unmarshal(text, &facts); err != nil {
		t.Fatal(err)
	}
	paths := settable("", facts.Resources["proxmox_virtual_environment_vm"].Block)
	if len(paths) < 100 {
		t.Errorf("only %d arguments: %q", len(paths), paths)
	}
	for _, path := range paths {
		if effect.Lookup(rows, path, -1) < effect.None {
			t.Errorf("%s has no row", path)
		}
	}
}

func TestEffectsOfAChangeOnAMachineThatRuns(t *testing.T) {
	disk := func(at string, size float64, storage string) any {
		return map[string]any{"interface": at, "size": size, "datastore_id": storage}
	}
	system, data := disk("scsi0", 32, "local-lvm"), disk("scsi1", 40, "local-lvm")
	list := func(disks ...any) []any { return disks }
	for name, test := range map[string]struct {
		change   planned.Difference
		replaces bool
		worst    effect.Kind
		texts    []string
	}{
		"memory waits for a restart": {planned.Difference{Path: "memory.dedicated", Was: 8192.0, Is: 12288.0},
			false, effect.Pending,
			[]string{"memory.dedicated 8192 → 12288"}},
		"shared memory is a device": {planned.Difference{Path: "memory.shared", Was: 0.0, Is: 64.0}, false,
			effect.Pending, []string{"memory.shared 0 → 64"}},
		"processors are pinned at a start": {planned.Difference{Path: "cpu.affinity", Was: "0-3", Is: "0-1"},
			false, effect.Pending, []string{`cpu.affinity "0-3" → "0-1"`}},
		"a card with more queues is plugged again": {planned.Difference{Path: "network_device[0].queues",
			Was: 0.0, Is: 4.0}, false, effect.Interrupts, []string{"network_device[0].queues 0 → 4"}},
		"a VLAN": {planned.Difference{Path: "network_device.vlan_id", Was: nil, Is: 20.0}, false,
			effect.Interrupts, []string{"network_device.vlan_id none → 20"}},
		"a card that was deleted": {planned.Difference{Path: "network_device", Was: []any{},
			Is: []any{map[string]any{"bridge": "vmbr0"}}}, false, effect.None, nil},
		"a card more than configured": {planned.Difference{Path: "network_device",
			Was: []any{"a", "b"}, Is: []any{"a"}}, false, effect.Interrupts,
			[]string{`network_device ["a", "b"] → ["a"]`}},
		"tags": {planned.Difference{Path: "tags", Was: []any{"a"}, Is: []any{"b"}}, false, effect.None,
			[]string{`tags ["a"] → ["b"]`}},
		"another id": {planned.Difference{Path: "vm_id", Was: 422.0, Is: 432.0}, true, effect.Replaces,
			[]string{"vm_id 422 → 432"}},
		"a disk grows": {planned.Difference{Path: "disk[1].size", Was: 40.0, Is: 80.0}, false, effect.None,
			[]string{"disk[1].size 40 → 80"}},
		"a disk shrinks": {planned.Difference{Path: "disk[1].size", Was: 40.0, Is: 20.0}, false,
			effect.Impossible, []string{"disk[1].size 40 → 20"}},
		"another storage": {planned.Difference{Path: "disk[0].datastore_id", Was: "a", Is: "b"}, false,
			effect.Impossible, []string{`disk[0].datastore_id "a" → "b"`}},
		"a disk goes": {planned.Difference{Path: "disk", Was: list(system, data), Is: list(system)}, false,
			effect.LosesData, []string{"detaches the disk scsi1 (40 GiB on local-lvm)"}},
		"a disk comes": {planned.Difference{Path: "disk", Was: list(system), Is: list(system, data)}, false,
			effect.None, nil},
		"one disk comes, another shrinks": {planned.Difference{Path: "disk", Was: list(system),
			Is: list(disk("scsi0", 16, "local-lvm"), data)}, false, effect.Impossible,
			[]string{"disk scsi0 size 32 → 16"}},
		"one disk comes, another has another cache": {planned.Difference{Path: "disk", Was: list(
			map[string]any{"interface": "scsi0", "cache": "none"}),
			Is: list(map[string]any{"interface": "scsi0", "cache": "writeback"}, data)}, false,
			effect.Pending, []string{`disk scsi0 cache "none" → "writeback"`}},
		"another address": {planned.Difference{Path: "initialization.ip_config.ipv4.address",
			Was: "192.168.1.222/24", Is: "192.168.1.199/24"}, false, effect.Impossible,
			[]string{`initialization.ip_config.ipv4.address "192.168.1.222/24" → "192.168.1.199/24"`}},
		"a stopped machine is started": {planned.Difference{Path: "started", Was: false, Is: true}, false,
			effect.None, []string{"started false → true"}},
		"a machine is stopped": {planned.Difference{Path: "started", Was: true, Is: false}, false,
			effect.Restarts, []string{"started true → false"}},
		"ballooning goes on with another target": {planned.Difference{Path: "memory.floating", Was: 2048.0,
			Is: 4096.0}, false, effect.None, []string{"memory.floating 2048 → 4096"}},
		"ballooning begins": {planned.Difference{Path: "memory.floating", Was: 0.0, Is: 4096.0}, false,
			effect.Pending, []string{"memory.floating 0 → 4096"}},
		"another processor": {planned.Difference{Path: "cpu.type", Was: "host", Is: "x86-64-v3"}, false,
			effect.Pending, []string{`cpu.type "host" → "x86-64-v3"`}},
		"a larger share of the processors": {planned.Difference{Path: "cpu.units", Was: 100.0, Is: 200.0},
			false, effect.None, []string{"cpu.units 100 → 200"}},
		"another chipset": {planned.Difference{Path: "machine", Was: "q35", Is: "pc"}, false, effect.Pending,
			[]string{`machine "q35" → "pc"`}},
		"another firmware": {planned.Difference{Path: "bios", Was: "seabios", Is: "ovmf"}, false,
			effect.Replaces, []string{`bios "seabios" → "ovmf"`}},
		"a TPM": {planned.Difference{Path: "tpm_state", Was: []any{},
			Is: []any{map[string]any{"version": "v2.0"}}}, false, effect.Replaces, []string{"tpm_state"}},
		"the start-up order": {planned.Difference{Path: "startup", Was: []any{},
			Is: []any{map[string]any{"order": 1.0}}}, false, effect.None, []string{"startup"}},
		"another MTU": {planned.Difference{Path: "network_device[1].mtu", Was: 0.0, Is: 1400.0}, false,
			effect.Interrupts, []string{"network_device[1].mtu 0 → 1400"}},
		"an address of a new card": {planned.Difference{Path: "initialization.ip_config",
			Was: []any{map[string]any{"ipv4": "a"}},
			Is:  []any{map[string]any{"ipv4": "a"}, map[string]any{}}}, false, effect.Pending,
			[]string{"initialization.ip_config"}},
		"another address of a further card": {planned.Difference{
			Path: "initialization.ip_config[1].ipv4.address", Was: "10.0.20.5/24", Is: "10.0.20.6/24"}, false,
			effect.Pending,
			[]string{`initialization.ip_config[1].ipv4.address "10.0.20.5/24" → "10.0.20.6/24"`}},
		"another address of the first of several cards": {planned.Difference{
			Path: "initialization.ip_config[0].ipv4.address", Was: "10.0.0.5/24", Is: "10.0.0.6/24"}, false,
			effect.Impossible,
			[]string{`initialization.ip_config[0].ipv4.address "10.0.0.5/24" → "10.0.0.6/24"`}},
		"a PCI device": {planned.Difference{Path: "hostpci", Was: []any{}, Is: []any{"gpu"}}, false,
			effect.Pending, []string{`hostpci [] → ["gpu"]`}},
		"a USB device more": {planned.Difference{Path: "usb", Was: []any{"a"}, Is: []any{"a", "b"}}, false,
			effect.None, nil},
		"a USB device less": {planned.Difference{Path: "usb", Was: []any{"a", "b"}, Is: []any{"a"}}, false,
			effect.Interrupts, []string{`usb ["a", "b"] → ["a"]`}},
		"what nobody knows": {planned.Difference{Path: "novelty", Was: 1.0, Is: 2.0}, false, effect.Replaces,
			[]string{"novelty 1 → 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := Of("VM 422", test.replaces, []planned.Difference{test.change})
			var texts []string
			for _, e := range all {
				texts = append(texts, e.Text)
			}
			if effect.Worst(all) != test.worst || !slices.Equal(texts, test.texts) {
				t.Errorf("got %v: %q", effect.Worst(all), texts)
			}
		})
	}
}
