package proxmox

import (
	"errors"
	"slices"
	"strings"
)

// migrate moves a guest to another node, with the volumes that only its own node has
// (qemu-server's PVE/API2/Qemu.pm migrate_vm and PVE/QemuMigrate.pm). Under high availability
// the call only leaves a request, which the stack carries out with all options that it needs.
func migrate(c *call, g *guest) (any, error) {
	target := c.get("target")
	known := slices.Contains(c.s.config.Nodes, target)
	switch {
	case target == "":
		return nil, badParameter("target", "property is missing and it is not optional\n")
	case target == g.Node:
		return nil, badParameter("target", "target is local node.")
	case !known:
		return nil, internal("no such cluster node '%s'", target)
	case g.locked() != nil:
		return nil, g.locked()
	case g.Running && !c.flag("online"):
		return nil, internal("can't migrate running VM without --online")
	case g.HA:
		worker := &call{s: c.s, request: c.request, caller: caller{id: root}, fault: &Fault{}}
		worker.move(g, target, true)
		return c.launch("hamigrate", g.ID, func(*task) error { return nil }).upid, nil
	}
	return c.move(g, target, c.flag("with-local-disks")), nil
}

// move starts the task. Until it has ended, the guest is locked and on its old node.
func (c *call) move(g *guest, target string, localDisks bool) (upid string) {
	s := c.s
	t := c.launch("qmigrate", g.ID, func(t *task) error {
		defer g.set("lock", "")
		if s.guests[g.ID] != g {
			return missing(g.Node, "qemu", g.ID)
		}
		aborts := s.offline[target]
		if err := g.migratable(s); err != nil {
			t.warn("migration aborted: %v", err)
			aborts = true
		}
		for _, volume := range sortedKeys(g.ownVolumes()) {
			generated := strings.Contains(volume, "cloudinit")
			if g.Running && !localDisks && !s.disks.isShared(volume) && !generated {
				t.warn("can't migrate local disk '%s': can't live migrate attached local disks without "+
					"with-local-disks option", volume)
				aborts = true
			}
		}
		if aborts {
			return errors.New("migration aborted")
		}
		g.carry(s, target)
		return nil
	})
	g.set("lock", "migrate")
	t.undo = func() { g.set("lock", "") }
	return t.upid
}

// carry moves the guest's volumes, and then the guest. A volume whose name is taken on the target gets the
// next free one.
func (g *guest) carry(s *Server, target string) {
	for _, key := range sortedKeys(g.Config) {
		volume, rest, options := strings.Cut(g.Config[key], ",")
		d := s.disks.get(g.Node, volume)
		if kindOf(key) != drive && !isUnused(key) || d == nil || ownerOf(volume) != g.ID ||
			s.disks.isShared(volume) {
			continue
		}
		moved := *d
		if id, _, _ := strings.Cut(volume, ":"); s.disks.get(target, volume) != nil {
			st, _ := s.config.storage(id) //nolint:errcheck // it has the volume
			moved.Volume = s.freeName(target, st, g.ID, d.Format)
		}
		s.disks.free(g.Node, volume)
		s.disks.store(target, moved)
		if g.Config[key] = moved.Volume; options {
			g.Config[key] += "," + rest
		}
	}
	g.Node = target
}

// Migrate moves a guest with its volumes without an API call.
func (s *Server) Migrate(id int, node string) {
	s.with(id, func(g *guest) { g.carry(s, node) })
}

// Configure sets options of a guest without an API call; an empty value removes one. Volumes that they name
// come into being, and none goes.
func (s *Server) Configure(id int, options map[string]string) {
	s.with(id, func(g *guest) {
		for key, value := range options {
			g.set(key, value)
		}
		for volume, size := range g.ownVolumes() {
			if s.disks.get(g.Node, volume) == nil {
				s.addImage(g, volume, size)
			}
		}
	})
}
