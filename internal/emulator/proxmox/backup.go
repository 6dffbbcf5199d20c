package proxmox

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// backup writes archives of guests to a storage (pve-manager's PVE/API2/VZDump.pm). A guest on another node
// is left out.
func backup(c *call) (any, error) {
	st, err := c.s.config.storage(c.get("storage"))
	if err != nil {
		return nil, err
	}
	if err := c.caller.check("/storage/"+st.ID, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}
	id, err := strconv.Atoi(c.get("vmid"))
	if err != nil {
		return nil, badParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
	}
	if err := c.caller.check(vmPath(id), "VM.Backup"); err != nil {
		return nil, err
	}
	node := c.get("node")
	g := c.s.guests[id]
	if g == nil || g.Node != node {
		return c.launch("vzdump", id, func(*task) error { return nil }).upid, nil
	}
	locked := g.locked()
	t := c.launch("vzdump", id, func(*task) error {
		if locked != nil {
			return fmt.Errorf("job errors: %w", locked)
		}
		g.set("lock", "")
		name := fmt.Sprintf("vzdump-qemu-%d-%s.vma.zst", id, time.Now().UTC().Format("2006_01_02-15_04_05"))
		c.s.disks.store(node, Disk{Volume: st.ID + ":backup/" + name, Owner: id, Size: downloadSize,
			Format: "vma.zst", Content: "backup", config: maps.Clone(g.Config)})
		return nil
	})
	if locked == nil {
		g.set("lock", "backup")
		t.undo = func() { g.set("lock", "") }
	}
	return t.upid, nil
}

// restore makes a guest of an archive: with all options of the one that was backed up, the uuid, the
// hardware addresses and the tags among them, unless the call wants unique ones (qemu-server's
// PVE/QemuServer.pm restore_file_archive). Its disks are new.
func restore(c *call, g *guest, pool string) (any, error) {
	archive := c.get("archive")
	if err := c.caller.checkVolume(g.ID, archive, "backup"); err != nil {
		return nil, err
	}
	source := c.s.disks.get(g.Node, archive)
	if source == nil || source.config == nil {
		return nil, internal("can't find archive file '%s'", archive)
	}
	for _, value := range source.config {
		volume, _, _ := strings.Cut(value, ",")
		if id, _, _ := strings.Cut(volume, ":"); ownerOf(volume) != 0 {
			err := c.caller.check("/storage/"+cmp.Or(c.get("storage"), id), "Datastore.AllocateSpace")
			if err != nil {
				return nil, err
			}
		}
	}
	if other := c.s.guests[g.ID]; other != nil {
		return nil, internal("unable to restore VM %d - VM %[1]d already exists on node '%[2]s'", g.ID,
			other.Node)
	}
	c.s.guests[g.ID] = g
	t := c.launch("qmrestore", g.ID, func(*task) error {
		config := maps.Clone(source.config)
		for _, key := range sortedKeys(config) {
			volume, rest, _ := strings.Cut(config[key], ",")
			switch old := ownerOf(volume); {
			case isUnused(key) || key == "parent":
				delete(config, key)
			case kindOf(key) == drive && old != 0:
				config[key] = c.copyDisk(g, volume, rest)
			case kindOf(key) == nic && c.flag("unique"):
				model, rest, _ := strings.Cut(config[key], ",")
				model, _, _ = strings.Cut(model, "=")
				config[key], _ = (&guest{}).card(key, "model="+model+","+rest) //nolint:errcheck // it has one
			}
		}
		if config["vmgenid"] = uuid(); c.flag("unique") {
			config["smbios1"] = "uuid=" + uuid()
		}
		g.Config, g.Pool = config, pool
		return nil
	})
	t.undo = func() { delete(c.s.guests, g.ID) }
	return t.upid, nil
}

// copyDisk makes the disk of a restored guest, and returns its drive option.
func (c *call) copyDisk(g *guest, volume, options string) string {
	id, _, _ := strings.Cut(volume, ":")
	size, _ := parseSize(parseProperties(options, "file")["size"]) //nolint:errcheck // 0 without one
	p := drivePlan{disk: Disk{Size: size}, cloudInit: strings.Contains(volume, "cloudinit")}
	p.storage, _ = c.s.config.storage(cmp.Or(c.get("storage"), id)) //nolint:errcheck // the volume was there
	return p.allocate(c.s, g) + "," + options
}
