package guest

import (
	"cmp"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// create takes the id and locks it at once; name, options and disks appear when the task is done.
func (s *Guests) create(c *rpc.Call) (any, error) {
	id, pool := c.VMID(), c.Get("pool")
	switch {
	case id == 0:
		return nil, failure.BadParameter("vmid", "property is missing and it is not optional\n")
	case pool != "" && !s.pools[pool]:
		return nil, failure.Forbidden(fmt.Sprintf(" (pool '%s' does not exist)", pool))
	case c.Caller.CheckVM(id, pool, "VM.Allocate") != nil:
		return nil, failure.Forbidden("")
	}
	if err := s.checkOptions(c, id, pool); err != nil {
		return nil, err
	}
	if c.Flag("start") {
		if err := c.Caller.CheckVM(id, pool, "VM.PowerMgmt"); err != nil {
			return nil, err
		}
	}
	g := &Guest{ID: id, Node: c.Get("node"), Kind: "qemu", Config: map[string]string{"lock": "create"}}
	if c.Get("archive") != "" {
		return s.restore(c, g, pool)
	}
	if err := s.checkBalloon(c, g); err != nil {
		return nil, err
	}
	change, err := s.change(c, g)
	if err != nil {
		return nil, err
	}
	if other := s.all[id]; other != nil {
		kind := map[string]string{"lxc": "CT", "qemu": "VM"}[other.Kind]
		return nil, failure.Internal("unable to create VM %d - %s %[1]d already exists on node '%[3]s'", id,
			kind, other.Node)
	}
	s.all[id] = g
	t := c.Launch("qmcreate", id, func(t *rpc.Task) error {
		// Since 9.2 a machine with tags is checked again, before it is in its pool.
		if err := c.Caller.Check(access.VMPath(id), "VM.Config.Options"); c.Get("tags") != "" && err != nil &&
			s.config.ChecksTags {
			delete(s.all, id)
			return fmt.Errorf("unable to create VM %d - %w", id, err)
		}
		change.apply(s, g)
		g.Config["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
		g.Config["smbios1"] = cmp.Or(g.Config["smbios1"], "uuid="+uuid.NewString())
		g.Config["vmgenid"] = cmp.Or(g.Config["vmgenid"], uuid.NewString())
		g.Set("lock", "")
		g.Pool = pool
		if c.Flag("start") {
			return s.start(t, g)
		}
		return nil
	})
	t.Undo = func() { delete(s.all, id) }
	return t.UPID, nil
}

func (s *Guests) destroy(c *rpc.Call, g *Guest) (any, error) {
	check := func() error {
		purge := c.Flag("purge")
		switch {
		case g.Config["protection"] == "1":
			return failure.Internal("can't remove VM %d - protection mode enabled", g.ID)
		case g.HA && !purge:
			return failure.Internal("unable to remove VM %d - used in HA resources and purge parameter not "+
				"set.", g.ID)
		case g.Replicated && !purge:
			return failure.Internal("There is a replication job '%d-0' for guest '%[1]d' - Please remove "+
				"that first.", g.ID)
		case g.Running:
			return failure.Internal("VM %d is running - destroy failed", g.ID)
		}
		return nil
	}
	if err := check(); err != nil {
		return nil, err
	}
	return c.Launch("qmdestroy", g.ID, func(t *rpc.Task) error {
		if s.all[g.ID] != g {
			return missing(g.Node, "qemu", g.ID)
		}
		if err := check(); err != nil {
			return err
		}
		if err := g.locked(); err != nil && g.Config["lock"] != "suspended" {
			return err
		}
		own := g.ownVolumes()
		for _, d := range s.disks.Sorted() {
			_, attached := own[d.Volume]
			unreferenced := c.Flag("destroy-unreferenced-disks") && d.Owner == g.ID
			switch {
			case s.disks.Get(g.Node, d.Volume) != d || !attached && !unreferenced:
			case d.Stuck:
				t.Warn("Could not remove disk '%s', check manually: lvremove '%[1]s' error: "+
					"Logical volume in use.", d.Volume)
			default:
				s.disks.Free(d.Node, d.Volume)
			}
		}
		if c.Flag("purge") {
			s.stack.Release(g)
		}
		g.tell(t, s.config.OnDestroy)
		s.remove(g)
		return nil
	}).UPID, nil
}
