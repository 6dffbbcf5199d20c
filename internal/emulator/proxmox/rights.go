package proxmox

import (
	"cmp"
	"slices"
	"strings"
)

// settings are the privileges that an option needs, one of several; # is a number. Only root may set others.
var settings = map[string]string{
	"VM.Config.CPU":     "cores cpu cpulimit cpuunits numa numa# sockets vcpus",
	"VM.Config.Memory":  "memory balloon shares",
	"VM.Config.HWType":  `acpi hotplug kvm machine scsihw smbios# tablet vga watchdog audio# rng# serial#`,
	"VM.Config.Network": "net#",
	"VM.Config.Disk":    "boot bootdisk vmstatestorage",
	"VM.Config.Options": `agent autostart bios description keyboard localtime migrate_speed name onboot ostype
		protection reboot startdate startup tdf template`,
	"VM.PowerMgmt": "freeze",
	"VM.Config.Cloudinit|VM.Config.Network": `cicustom cipassword citype ciuser ciupgrade nameserver
		searchdomain sshkeys ipconfig#`,
}

// checkFetch is the error for a caller that may not have a node fetch a URL.
func (c *call) checkFetch() error {
	if c.caller.may("/", "Sys.Audit", "Sys.Modify") ||
		c.caller.may("/nodes/"+c.get("node"), "Sys.AccessNetwork") {
		return nil
	}
	return forbidden("")
}

// checkOptions is the error for a caller that may not set, or delete, the options of a call. The machine
// exists unless the call names a pool for it.
func (c *call) checkOptions(id int, pool string) error {
	deleted := splitList(c.get("delete"))
	for _, key := range append(deleted, sortedKeys(c.request.Params)...) {
		switch kindOf(key) {
		case unknown, argument, drive, tagList:
			continue
		}
		name, found := digits.ReplaceAllString(key, "#"), false
		if name == "hostpci#" || name == "usb#" {
			for _, value := range []string{c.get(key), c.deleted(id, key)} { // what is set, and what goes
				if value == "" {
					continue
				}
				if err := c.checkMapped(id, pool, key, value); err != nil {
					return err
				}
			}
			continue
		}
		for privilege, names := range settings {
			if !slices.Contains(strings.Fields(names), name) {
				continue
			}
			found = true
			if err := c.caller.checkVM(id, pool, strings.Split(privilege, "|")...); err != nil {
				return err
			}
		}
		if !found && c.caller.id != root {
			return internal("only root can set '%s' config", key)
		}
	}
	for _, key := range sortedKeys(c.request.Params) {
		var err error
		switch value := c.get(key); kindOf(key) {
		case drive:
			err = c.checkDrive(id, value)
		case nic:
			card := parseProperties(value, "model")
			path := "/sdn/zones/localnetwork/" + card["bridge"]
			if card["tag"] != "" {
				path += "/" + card["tag"]
			}
			if card["bridge"] != "" {
				err = c.caller.check(path, "SDN.Use")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkDrive is the error for a caller that may not use the volumes of a drive option.
func (c *call) checkDrive(id int, value string) error {
	p := parseProperties(value, "file")
	volume := cmp.Or(p["file"], p["volume"])
	storage, name, managed := strings.Cut(volume, ":")
	switch {
	case !managed || name == "cloudinit":
	case newDisk.MatchString(volume):
		if err := c.caller.check("/storage/"+storage, "Datastore.AllocateSpace"); err != nil {
			return err
		}
	default:
		if err := c.caller.checkVolume(id, volume, contentOf(volume)); err != nil {
			return err
		}
	}
	switch source := p["import-from"]; {
	case source == "":
		return nil
	case ownerOf(source) != 0:
		return c.caller.check(vmPath(ownerOf(source)), "VM.Clone")
	default:
		return c.caller.checkVolume(id, source, contentOf(source))
	}
}

// checkDrives is the error for a caller that may not change these drives of an existing machine.
func (c *call) checkDrives(g *guest) error {
	for _, key := range append(splitList(c.get("delete")), sortedKeys(c.request.Params)...) {
		value := cmp.Or(c.get(key), g.Config[key])
		need := []string{"VM.Config.Disk"}
		switch {
		case kindOf(key) != drive && !isUnused(key) || value == "":
			continue
		case strings.Contains(value, "cloudinit"):
			need = []string{"VM.Config.Cloudinit", "VM.Config.CDROM"}
		case strings.Contains(value, "media=cdrom"):
			need = []string{"VM.Config.CDROM"}
		}
		if err := c.caller.check(vmPath(g.ID), need...); err != nil {
			return err
		}
	}
	return nil
}

// contentOf is the content type in the name of a file on a storage: local:import/talos.qcow2.
func contentOf(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	kind, _, _ := strings.Cut(name, "/")
	return kind
}
