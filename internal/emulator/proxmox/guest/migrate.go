package guest

import (
	"errors"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
)

// migrate moves a guest to another node, with the volumes that only its own node has
// (qemu-server's PVE/API2/Qemu.pm migrate_vm and PVE/QemuMigrate.pm). Under high availability
// the call only leaves a request, which the stack carries out with all options that it needs.
func (s *Guests) migrate(c *rpc.Call, g *Guest) (any, error) {
	target := c.Get("target")
	known := slices.Contains(s.config.Nodes, target)
	switch {
	case target == "":
		return nil, failure.BadParameter("target", "property is missing and it is not optional\n")
	case target == g.Node:
		return nil, failure.BadParameter("target", "target is local node.")
	case !known:
		return nil, failure.Internal("no such cluster node '%s'", target)
	case g.locked() != nil:
		return nil, g.locked()
	case g.Running && !c.Flag("online"):
		return nil, failure.Internal("can't migrate running VM without --online")
	case g.HA:
		worker := c.As(s.access.As(access.Root))
		s.move(worker, g, target, true)
		return c.Launch("hamigrate", g.ID, func(*rpc.Task) error { return nil }).UPID, nil
	}
	return s.move(c, g, target, c.Flag("with-local-disks")), nil
}

// move starts the task. Until it has ended, the guest is locked and on its old node.
func (s *Guests) move(c *rpc.Call, g *Guest, target string, localDisks bool) (upid string) {
	t := c.Launch("qmigrate", g.ID, func(t *rpc.Task) error {
		defer g.Set("lock", "")
		if s.all[g.ID] != g {
			return missing(g.Node, "qemu", g.ID)
		}
		aborts := s.config.Offline(target)
		if err := g.migratable(s); err != nil {
			t.Warn("migration aborted: %v", err)
			aborts = true
		}
		for _, volume := range sortedKeys(g.ownVolumes()) {
			generated := strings.Contains(volume, "cloudinit")
			if g.Running && !localDisks && !s.disks.IsShared(volume) && !generated {
				t.Warn("can't migrate local disk '%s': can't live migrate attached local disks without "+
					"with-local-disks option", volume)
				aborts = true
			}
		}
		if aborts {
			return errors.New("migration aborted")
		}
		s.Carry(g, target)
		return nil
	})
	g.Set("lock", "migrate")
	t.Undo = func() { g.Set("lock", "") }
	return t.UPID
}

// Carry moves a guest's volumes, and then the guest. A volume whose name is taken on the target gets the
// next free one.
func (s *Guests) Carry(g *Guest, target string) {
	for _, key := range sortedKeys(g.Config) {
		volume, rest, options := strings.Cut(g.Config[key], ",")
		d := s.disks.Get(g.Node, volume)
		if !option.IsDrive(key) && !option.IsUnused(key) || d == nil || storage.OwnerOf(volume) != g.ID ||
			s.disks.IsShared(volume) {
			continue
		}
		moved := *d
		if id, _, _ := strings.Cut(volume, ":"); s.disks.Get(target, volume) != nil {
			st, _ := s.disks.Storage(id) //nolint:errcheck // it has the volume
			moved.Volume = s.disks.FreeName(target, st, g.ID, d.Format)
		}
		s.disks.Free(g.Node, volume)
		s.disks.Store(target, moved)
		if g.Config[key] = moved.Volume; options {
			g.Config[key] += "," + rest
		}
	}
	g.Node = target
}
