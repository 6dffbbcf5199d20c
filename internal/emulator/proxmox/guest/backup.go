package guest

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
)

// backup writes archives of guests to a storage (pve-manager's PVE/API2/VZDump.pm). A guest on another node
// is left out.
func (s *Guests) backup(c *rpc.Call) (any, error) {
	st, err := s.disks.Storage(c.Get("storage"))
	if err != nil {
		return nil, err
	}
	if err := c.Caller.Check("/storage/"+st.ID, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}
	id, err := strconv.Atoi(c.Get("vmid"))
	if err != nil {
		return nil, failure.BadParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
	}
	if err := c.Caller.Check(access.VMPath(id), "VM.Backup"); err != nil {
		return nil, err
	}
	node := c.Get("node")
	g := s.all[id]
	if g == nil || g.Node != node {
		return c.Launch("vzdump", id, func(*rpc.Task) error { return nil }).UPID, nil
	}
	locked := g.locked()
	t := c.Launch("vzdump", id, func(*rpc.Task) error {
		if locked != nil {
			return fmt.Errorf("job errors: %w", locked)
		}
		g.Set("lock", "")
		name := fmt.Sprintf("vzdump-qemu-%d-%s.vma.zst", id, time.Now().UTC().Format("2006_01_02-15_04_05"))
		s.disks.Store(node, storage.Disk{Volume: st.ID + ":backup/" + name, Owner: id, Size: storage.FileSize,
			Format: "vma.zst", Content: "backup", Config: maps.Clone(g.Config)})
		return nil
	})
	if locked == nil {
		g.Set("lock", "backup")
		t.Undo = func() { g.Set("lock", "") }
	}
	return t.UPID, nil
}

// restore makes a guest of an archive: with all options of the one that was backed up, the uuid, the
// hardware addresses and the tags among them, unless the call wants unique ones (qemu-server's
// PVE/QemuServer.pm restore_file_archive). Its disks are new.
func (s *Guests) restore(c *rpc.Call, g *Guest, pool string) (any, error) {
	archive := c.Get("archive")
	if err := storage.CheckAccess(c.Caller, g.ID, archive, "backup"); err != nil {
		return nil, err
	}
	source := s.disks.Get(g.Node, archive)
	if source == nil || source.Config == nil {
		return nil, failure.Internal("can't find archive file '%s'", archive)
	}
	for _, value := range source.Config {
		volume, _, _ := strings.Cut(value, ",")
		if id, _, _ := strings.Cut(volume, ":"); storage.OwnerOf(volume) != 0 {
			err := c.Caller.Check("/storage/"+cmp.Or(c.Get("storage"), id), "Datastore.AllocateSpace")
			if err != nil {
				return nil, err
			}
		}
	}
	if other := s.all[g.ID]; other != nil {
		return nil, failure.Internal("unable to restore VM %d - VM %[1]d already exists on node '%[2]s'",
			g.ID, other.Node)
	}
	s.all[g.ID] = g
	t := c.Launch("qmrestore", g.ID, func(*rpc.Task) error {
		config := maps.Clone(source.Config)
		for _, key := range sortedKeys(config) {
			volume, rest, _ := strings.Cut(config[key], ",")
			switch old := storage.OwnerOf(volume); {
			case option.IsUnused(key) || key == "parent":
				delete(config, key)
			case option.IsDrive(key) && old != 0:
				config[key] = s.copyDisk(c, g, volume, rest)
			case option.KindOf(key) == option.NIC && c.Flag("unique"):
				model, rest, _ := strings.Cut(config[key], ",")
				model, _, _ = strings.Cut(model, "=")
				config[key], _ = option.Card(key, "model="+model+","+rest, "") //nolint:errcheck // it has one
			}
		}
		if config["vmgenid"] = uuid.NewString(); c.Flag("unique") {
			config["smbios1"] = "uuid=" + uuid.NewString()
		}
		g.Config, g.Pool = config, pool
		return nil
	})
	t.Undo = func() { delete(s.all, g.ID) }
	return t.UPID, nil
}

// copyDisk makes the disk of a restored guest, and returns its drive option.
func (s *Guests) copyDisk(c *rpc.Call, g *Guest, volume, options string) string {
	id, _, _ := strings.Cut(volume, ":")
	p := drivePlan{disk: storage.Disk{Size: option.DriveSize(options)},
		cloudInit: strings.Contains(volume, "cloudinit")}
	p.storage, _ = s.disks.Storage(cmp.Or(c.Get("storage"), id)) //nolint:errcheck // the volume was there
	return p.allocate(s, g) + "," + options
}
