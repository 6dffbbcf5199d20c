package proxmox

import (
	"maps"
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

// isLive reports whether a running guest follows a new value of an option at once; "" removes it.
func (g *guest) isLive(key, value string) bool {
	has := func(feature string) bool {
		features := g.Config["hotplug"]
		if features == "" || features == "1" {
			features = "network,disk,usb"
		}
		return slices.Contains(splitList(features), feature)
	}
	name := digits.ReplaceAllString(key, "#")
	switch {
	case isUnused(key), slices.Contains(strings.Fields(liveOptions), name):
		return true
	case name == "net#":
		return has("network")
	case name == "balloon": // the device itself cannot be plugged
		off := func(target string) bool { return target == "0" }
		return off(g.Config[key]) == off(value)
	case name == "usb#": // since release 7.3
		return has("usb") && g.Config["ostype"] == "l26"
	case name == "tablet":
		return has("usb")
	case name == "vcpus":
		return has("cpu")
	case name == "memory":
		return has("memory") && g.Config["numa"] == "1"
	case name == "ide#", name == "sata#": // another CD in the drive
		return strings.Contains(g.Config[key], "media=cdrom") && strings.Contains(value, "media=cdrom")
	case name != "scsi#" && name != "virtio#" || !has("disk"):
		return false
	}
	was, is := parseProperties(g.Config[key], "file"), parseProperties(value, "file")
	return was["file"] != is["file"] || !slices.ContainsFunc(fixedProperties,
		func(property string) bool { return was[property] != is[property] })
}

// follows reports whether a new value of an option takes effect at once.
func (g *guest) follows(key, value string) bool { return !g.Running || g.isLive(key, value) }

// assign changes an option: at once, or, where a running guest cannot follow, at its next start. "" removes
// it.
func (g *guest) assign(s *Server, key, value string) {
	delete(g.Pending, key)
	switch {
	case g.Config[key] == value:
	case !g.follows(key, value):
		if g.Pending == nil {
			g.Pending = map[string]string{}
		}
		g.Pending[key] = value
	default:
		if kindOf(key) == drive && !sameVolume(g.Config[key], value) {
			g.detach(s, key)
		}
		g.set(key, value)
	}
}

// sameVolume reports whether two drives have one volume.
func sameVolume(a, b string) bool {
	return parseProperties(a, "file")["file"] == parseProperties(b, "file")["file"]
}

// settle applies what has waited for the guest's start: at the end of a stop that Proxmox was asked for, else
// at the start itself.
func (g *guest) settle(s *Server) {
	waiting := g.Pending
	g.Pending = nil
	for _, key := range sortedKeys(waiting) {
		g.assign(s, key, waiting[key])
	}
}

// planned is the guest with everything that waits for its start.
func (g *guest) planned() *guest {
	p := *g
	p.Config = maps.Clone(g.Config)
	for key, value := range g.Pending {
		p.set(key, value)
	}
	return &p
}

// showConfig shows what waits for the guest's start as if it were applied, unless the caller asks for the
// current values.
func showConfig(c *call, g *guest) (any, error) {
	out := g.planned().show()
	if c.flag("current") {
		out = g.show()
	}
	out["digest"] = g.digest()
	return out, nil
}

// showPending lists every option, with what waits for the guest's start.
func showPending(_ *call, g *guest) (any, error) {
	now, then := g.show(), g.planned().show()
	rows := []any{}
	for _, key := range sortedKeys(now) {
		row := map[string]any{"key": key, "value": now[key]}
		if value, waits := g.Pending[key]; waits && value == "" {
			row["delete"] = 1
		} else if waits {
			row["pending"] = then[key]
		}
		rows = append(rows, row)
	}
	for _, key := range sortedKeys(g.Pending) {
		if now[key] == nil {
			rows = append(rows, map[string]any{"key": key, "pending": then[key]})
		}
	}
	return rows, nil
}
