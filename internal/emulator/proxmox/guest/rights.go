package guest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
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

// checkOptions is the error for a caller that may not set, or delete, the options of a call. The machine
// exists unless the call names a pool for it.
func (s *Guests) checkOptions(c *rpc.Call, id int, pool string) error {
	deleted := option.SplitList(c.Get("delete"))
	for _, key := range append(deleted, sortedKeys(c.Request.Params)...) {
		switch option.KindOf(key) {
		case option.Unknown, option.Argument, option.Drive, option.TagList:
			continue
		}
		name, found := option.Name(key), false
		if name == "hostpci#" || name == "usb#" {
			for _, value := range []string{c.Get(key), s.deleted(c, id, key)} { // what is set, and what goes
				if value == "" {
					continue
				}
				if err := s.checkMapped(c, id, pool, key, value); err != nil {
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
			if err := c.Caller.CheckVM(id, pool, strings.Split(privilege, "|")...); err != nil {
				return err
			}
		}
		if !found && c.Caller.ID != access.Root {
			return failure.Internal("only root can set '%s' config", key)
		}
	}
	for _, key := range sortedKeys(c.Request.Params) {
		var err error
		switch value := c.Get(key); option.KindOf(key) {
		case option.Drive:
			err = s.checkDrive(c, id, value)
		case option.NIC:
			card := option.Parse(value, "model")
			path := "/sdn/zones/localnetwork/" + card["bridge"]
			if card["tag"] != "" {
				path += "/" + card["tag"]
			}
			if card["bridge"] != "" {
				err = c.Caller.Check(path, "SDN.Use")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkDrive is the error for a caller that may not use the volumes of a drive option.
func (s *Guests) checkDrive(c *rpc.Call, id int, value string) error {
	p := option.Parse(value, "file")
	volume := cmp.Or(p["file"], p["volume"])
	on, name, managed := strings.Cut(volume, ":")
	switch {
	case !managed || name == "cloudinit":
	case newDisk.MatchString(volume):
		if err := c.Caller.Check("/storage/"+on, "Datastore.AllocateSpace"); err != nil {
			return err
		}
	default:
		if err := storage.CheckAccess(c.Caller, id, volume, storage.ContentOf(volume)); err != nil {
			return err
		}
	}
	switch source := p["import-from"]; {
	case source == "":
		return nil
	case storage.OwnerOf(source) != 0:
		return c.Caller.Check(access.VMPath(storage.OwnerOf(source)), "VM.Clone")
	default:
		return storage.CheckAccess(c.Caller, id, source, storage.ContentOf(source))
	}
}

// checkDrives is the error for a caller that may not change these drives of an existing machine.
func (s *Guests) checkDrives(c *rpc.Call, g *Guest) error {
	for _, key := range append(option.SplitList(c.Get("delete")), sortedKeys(c.Request.Params)...) {
		value := cmp.Or(c.Get(key), g.Config[key])
		need := []string{"VM.Config.Disk"}
		switch {
		case !option.IsDrive(key) && !option.IsUnused(key) || value == "":
			continue
		case strings.Contains(value, "cloudinit"):
			need = []string{"VM.Config.Cloudinit", "VM.Config.CDROM"}
		case strings.Contains(value, "media=cdrom"):
			need = []string{"VM.Config.CDROM"}
		}
		if err := c.Caller.Check(access.VMPath(g.ID), need...); err != nil {
			return err
		}
	}
	return nil
}
