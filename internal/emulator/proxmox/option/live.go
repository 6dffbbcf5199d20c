package option

import (
	"slices"
	"strings"
)

// liveOptions change a guest while it runs, whatever its option hotplug says: those that only Proxmox reads,
// those of cloud-init, and those of the guest's cgroup (vmconfig_hotplug_pending in PVE/QemuServer.pm).
const liveOptions = `description hookscript lock migrate_downtime migrate_speed name onboot protection shares
	startup tags vmstatestorage cicustom cipassword citype ciuser ciupgrade ipconfig# nameserver searchdomain
	sshkeys hotplug cpuunits cpulimit`

// fixedProperties of a drive wait for the next start; its limits and its flags for backups do not.
var fixedProperties = []string{"aio", "cache", "discard", "iothread", "product", "queues", "ro", "ssd"}

// IsLive reports whether a running guest with these options follows a new value of one at once; "" removes
// it.
func IsLive(options map[string]string, key, value string) bool {
	has := func(feature string) bool {
		features := options["hotplug"]
		if features == "" || features == "1" {
			features = "network,disk,usb"
		}
		return slices.Contains(SplitList(features), feature)
	}
	name := Name(key)
	switch {
	case IsUnused(key), slices.Contains(strings.Fields(liveOptions), name):
		return true
	case name == "net#":
		return has("network")
	case name == "balloon": // the device itself cannot be plugged
		off := func(target string) bool { return target == "0" }
		return off(options[key]) == off(value)
	case name == "usb#": // since release 7.3
		return has("usb") && options["ostype"] == "l26"
	case name == "tablet":
		return has("usb")
	case name == "vcpus":
		return has("cpu")
	case name == "memory":
		return has("memory") && options["numa"] == "1"
	case name == "ide#", name == "sata#": // another CD in the drive
		return strings.Contains(options[key], "media=cdrom") && strings.Contains(value, "media=cdrom")
	case name != "scsi#" && name != "virtio#" || !has("disk"):
		return false
	}
	was, is := Parse(options[key], "file"), Parse(value, "file")
	return was["file"] != is["file"] || !slices.ContainsFunc(fixedProperties,
		func(property string) bool { return was[property] != is[property] })
}
