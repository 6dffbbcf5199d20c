package proxmox

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// effects says what a change of each argument of a machine does to it while it runs: how the provider sends
// it to Proxmox, and whether Proxmox changes a running guest or keeps the change until its next start
// (https://pve.proxmox.com/pve-docs/chapter-qm.html, "Hotplug"). The stage sets reboot_after_update = false.
// The longest path that fits decides; one without a row replaces the machine.
var effects = map[string]effect.Kind{
	"acpi": effect.Pending, "agent": effect.Pending, "amd_sev": effect.Pending, "audio_device": effect.Pending,
	"bios": effect.Pending, "boot_order": effect.Pending, "cdrom": effect.None, "clone": effect.Replaces,
	"cpu": effect.Pending, "cpu.affinity": effect.None, "cpu.limit": effect.None, "cpu.units": effect.None,
	"delete_unreferenced_disks_on_destroy": effect.None, "description": effect.None,
	"disk": effect.LosesData, "disk.aio": effect.Pending, "disk.backup": effect.None,
	"disk.cache": effect.Pending, "disk.datastore_id": effect.Impossible, "disk.discard": effect.Pending,
	"disk.file_format": effect.Impossible, "disk.file_id": effect.Replaces, "disk.import_from": effect.Replaces,
	"disk.interface": effect.LosesData, "disk.iothread": effect.Pending,
	"disk.path_in_datastore": effect.LosesData, "disk.queues": effect.Pending, "disk.replicate": effect.None,
	"disk.serial": effect.Pending, "disk.size": effect.None, "disk.speed": effect.None,
	"disk.ssd": effect.Pending, "efi_disk": effect.Replaces, "hook_script_file_id": effect.None,
	"hostpci": effect.Pending, "hotplug": effect.None, "id": effect.Replaces, "initialization": effect.Pending,
	"initialization.datastore_id": effect.Impossible,
	"initialization.ip_config":    effect.Impossible, "initialization.file_format": effect.Impossible,
	"keyboard_layout": effect.None, "kvm_arguments": effect.Pending, "mac_addresses": effect.Interrupts,
	"machine": effect.Pending, "memory": effect.Pending, "memory.shared": effect.None, "migrate": effect.None,
	"name": effect.None, "network_device": effect.Interrupts, "network_device.firewall": effect.None,
	"network_device.rate_limit": effect.None, "network_device.queues": effect.Pending,
	"node_name": effect.Replaces, "numa": effect.Pending, "on_boot": effect.None,
	"operating_system": effect.Pending, "pool_id": effect.None, "protection": effect.None,
	"purge_on_destroy": effect.None, "reboot": effect.None, "reboot_after_update": effect.None,
	"rng": effect.Pending, "scsi_hardware": effect.Pending, "serial_device": effect.Pending,
	"smbios": effect.Pending, "started": effect.None, "startup": effect.None, "stop_on_destroy": effect.None,
	"tablet_device": effect.None, "tags": effect.None, "template": effect.Impossible, "timeouts": effect.None,
	"timeout_clone": effect.None, "timeout_create": effect.None, "timeout_migrate": effect.None,
	"timeout_move_disk": effect.None, "timeout_reboot": effect.None, "timeout_shutdown_vm": effect.None,
	"timeout_start_vm": effect.None, "timeout_stop_vm": effect.None, "tpm_state": effect.Replaces,
	"usb": effect.Pending, "vga": effect.Pending, "virtiofs": effect.Pending, "vm_id": effect.Replaces,
	"watchdog": effect.Pending,
	// Read from the machine.
	"ipv4_addresses": effect.None, "ipv6_addresses": effect.None, "network_interface_names": effect.None,
}

// index is a number in a path: disk[1].size.
var index = regexp.MustCompile(`\[\d+\]`)

// kindOf returns the effect of the longest row that fits a path, and whether there is one.
func kindOf(path string) (kind effect.Kind, known bool) {
	for at := index.ReplaceAllString(path, ""); ; {
		if kind, known := effects[at]; known {
			return kind, true
		}
		cut := strings.LastIndexAny(at, ".[")
		if cut < 0 {
			return effect.Replaces, false
		}
		at = at[:cut]
	}
}

// Effects returns what a change does to a machine while it runs.
func (Platform) Effects(was map[string]any, replaces bool, differences []terraform.Difference) (
	all []effect.Effect) {
	guest := fmt.Sprintf("VM %d", readAttributes(was).VM)
	for _, d := range differences {
		switch path := index.ReplaceAllString(d.Path, ""); {
		case replaces:
			all = append(all, effect.Effect{Kind: effect.Replaces,
				Text: d.Text(), Remedy: remedyFor(path, guest)})
		case path == "disk" || path == "disk.interface":
			all = append(all, disks(d, was, guest)...)
		default:
			all = append(all, change(d, path, guest))
		}
	}
	if replaces && len(all) == 0 {
		all = append(all, effect.Effect{Kind: effect.Replaces, Text: "on request"})
	}
	return all
}

// change is the effect of a difference that is no change of the list of disks.
func change(d terraform.Difference, path, guest string) effect.Effect {
	e := effect.Effect{Remedy: remedyFor(path, guest)}
	e.Kind, _ = kindOf(path)
	was, _ := d.Was.(float64)
	is, _ := d.Is.(float64)
	switch {
	case path == "disk.size" && is < was:
		e.Kind, e.Remedy = effect.Impossible, "no disk of Proxmox becomes smaller: set the former size again"
	case path == "started" && d.Is != true:
		e.Kind = effect.Restarts
	}
	e.Text = d.Text()
	return e
}

// disks compares two lists of disks by their interfaces. A new disk harms nobody.
func disks(d terraform.Difference, was map[string]any, guest string) (all []effect.Effect) {
	before, after := diskList(d.Was), diskList(d.Is)
	if before == nil || after == nil { // one attribute of one disk: the whole list is not known
		return []effect.Effect{{Kind: effect.LosesData, Text: d.Text()}}
	}
	for _, disk := range before {
		at := slices.IndexFunc(after, func(o map[string]any) bool {
			return o["interface"] == disk["interface"]
		})
		if at < 0 {
			all = append(all, effect.Effect{Kind: effect.LosesData,
				Text:   "detaches the disk " + diskText(disk),
				Remedy: "move its data away first, then detach the disk of " + guest + " in Proxmox"})
			continue
		}
		for _, name := range []string{"datastore_id", "size", "file_format"} {
			if was, is := disk[name], after[at][name]; is != nil && !reflect.DeepEqual(was, is) {
				all = append(all, change(terraform.Difference{
					Path: fmt.Sprintf("disk %v %s", disk["interface"], name), Was: was, Is: is,
				}, "disk."+name, guest))
			}
		}
	}
	return all
}

func diskList(list any) (all []map[string]any) {
	entries, _ := list.([]any)
	for _, entry := range entries {
		disk, is := entry.(map[string]any)
		if !is {
			return nil
		}
		all = append(all, disk)
	}
	return all
}

func diskText(disk map[string]any) string {
	return fmt.Sprintf("%v (%v GiB on %v)", disk["interface"], disk["size"], disk["datastore_id"])
}

// remedyFor is what a user does by hand instead of a change of a path.
func remedyFor(path, guest string) string {
	first, _, _ := strings.Cut(path, ".")
	switch {
	case path == "disk.datastore_id" || path == "initialization.datastore_id":
		return "set the former storage again, or move the disks of " + guest + " first: qm disk move"
	case path == "initialization.ip_config" || strings.HasPrefix(path, "initialization.ip_config."):
		return "a machine keeps its address; set the former one again, or give a new machine the new address"
	case first == "network_device" || first == "mac_addresses":
		return "change the card of " + guest + " in Proxmox"
	case first == "node_name":
		return "migrate " + guest + " in Proxmox"
	}
	return "" // the general steps
}

// Describe names the machine of a resource, and its disks.
func (Platform) Describe(attributes map[string]any) (machine string, disks []string) {
	a := readAttributes(attributes)
	for _, disk := range diskList(attributes["disk"]) {
		disks = append(disks, diskText(disk))
	}
	return fmt.Sprintf("VM %d on node %s", a.VM, cmp.Or(a.Node, "?")), disks
}
