// Package effects says what a change of a machine of Proxmox does to it while it runs.
package effects

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// rows says what a change of each argument of a machine does to it while it runs: how the provider sends
// it to Proxmox, and whether Proxmox changes a running guest or keeps the change until its next start
// (https://pve.proxmox.com/pve-docs/chapter-qm.html, "Hotplug", and vmconfig_hotplug_pending in its
// PVE/QemuServer.pm). Processors and memory change while it runs only in a guest whose option hotplug names
// them, which is not the default. The stage sets reboot_after_update = false.
// The longest path that fits decides; one without a row replaces the machine.
var rows = effect.Table(map[effect.Kind]string{
	effect.None: `cdrom cpu.limit cpu.units delete_unreferenced_disks_on_destroy description disk.backup
		disk.replicate disk.size disk.speed hook_script_file_id migrate name network_device.firewall
		network_device.rate_limit on_boot pool_id protection purge_on_destroy reboot reboot_after_update
		started startup stop_on_destroy tablet_device tags timeouts timeout_clone timeout_create
		timeout_migrate timeout_move_disk timeout_reboot timeout_shutdown_vm timeout_start_vm
		timeout_stop_vm ipv4_addresses ipv6_addresses network_interface_names`,
	effect.Pending: `acpi agent amd_sev audio_device boot_order cpu disk.aio disk.cache
		disk.discard disk.iothread disk.queues disk.serial disk.ssd hostpci hotplug initialization
		keyboard_layout kvm_arguments machine memory numa operating_system rng scsi_hardware serial_device
		smbios vga virtiofs watchdog`,
	// USB devices are plugged and unplugged at once: Pods would lose one.
	effect.Interrupts: `mac_addresses network_device usb`,
	// At its first start from an image, Talos removes the boot loader of the other firmware.
	effect.Replaces:  `bios clone disk.file_id disk.import_from efi_disk id node_name tpm_state vm_id`,
	effect.LosesData: `disk disk.interface disk.path_in_datastore`,
	effect.Impossible: `disk.datastore_id disk.file_format initialization.datastore_id
		initialization.ip_config initialization.file_format template`,
})

// index is a number in a path: disk[1].size.
var index = regexp.MustCompile(`\[\d+\]`)

// Of returns what a change does to a guest, "VM 421", while it runs; replaces: the differences replace it.
func Of(guest string, replaces bool, differences []planned.Difference) (all []effect.Effect) {
	for _, d := range differences {
		switch path := index.ReplaceAllString(d.Path, ""); {
		case replaces:
			all = append(all, effect.Effect{Kind: effect.Replaces, Text: d.Text()})
		case (path == "network_device" || path == "usb") && addsOnly(d): // what is new interrupts nobody
		case strings.HasPrefix(path, "initialization.ip_config") && ofFurtherCard(d):
			all = append(all, effect.Effect{Kind: effect.Pending, Text: d.Text()})
		case path == "disk" || path == "disk.interface":
			all = append(all, disks(d, guest)...)
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
func change(d planned.Difference, path, guest string) effect.Effect {
	e := effect.Effect{Kind: effect.Lookup(rows, path, effect.Replaces), Remedy: remedyFor(path, guest)}
	was, _ := d.Was.(float64)
	is, _ := d.Is.(float64)
	switch {
	case path == "memory.floating" && was > 0 && is > 0: // the device stays, with another target
		e.Kind = effect.None
	case path == "disk.size" && is < was:
		e.Kind, e.Remedy = effect.Impossible, "no disk of Proxmox becomes smaller: set the former size again"
	case path == "started" && d.Is != true:
		e.Kind = effect.Restarts
	}
	e.Text = d.Text()
	return e
}

// disks compares two lists of disks by their interfaces. A new disk harms nobody.
func disks(d planned.Difference, guest string) (all []effect.Effect) {
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
				Text: "detaches the disk " + diskText(disk)})
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(after[at])) {
			if was, is := disk[name], after[at][name]; is != nil && !reflect.DeepEqual(was, is) {
				all = append(all, change(planned.Difference{
					Path: fmt.Sprintf("disk %v %s", disk["interface"], name), Was: was, Is: is,
				}, "disk."+name, guest))
			}
		}
	}
	return all
}

// addsOnly reports whether a list keeps all that it has.
func addsOnly(d planned.Difference) bool {
	was, _ := d.Was.([]any)
	is, _ := d.Is.([]any)
	return len(is) > len(was) && (len(was) == 0 || reflect.DeepEqual(was, is[:len(was)]))
}

// ofFurtherCard reports whether a change of the addresses leaves that of the first card, by which the machine
// is known. Talos reads the others whenever it starts.
func ofFurtherCard(d planned.Difference) bool {
	was, _ := d.Was.([]any)
	is, _ := d.Is.([]any)
	if len(was) > 0 && len(is) > 0 {
		return reflect.DeepEqual(was[0], is[0])
	}
	n := index.FindString(d.Path)
	return n != "" && n != "[0]"
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

// remedyFor is what a user does instead of a change of a path.
func remedyFor(path, guest string) string {
	switch {
	case path == "disk.datastore_id" || path == "initialization.datastore_id":
		return "set the former storage again, or move the disks of " + guest + " first: qm disk move"
	case path == "initialization.ip_config" || strings.HasPrefix(path, "initialization.ip_config."):
		return "a machine keeps its address; set the former one again, or give a new machine the new address"
	}
	return ""
}

// Disks describes the disks of a machine's resource.
func Disks(attributes map[string]any) []string {
	return xslices.Map(diskList(attributes["disk"]), diskText)
}
