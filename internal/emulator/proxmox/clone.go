package proxmox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// clone copies a guest (qemu-server's PVE/API2/Qemu.pm, clone_vm). The copy has the name and description of
// the call at once, and a lock; its uuid and hardware addresses are new. A linked clone's disks are based on
// those of a template, on the same storage. The copy moves to another node at the end, if every disk is on
// shared storage.
func clone(c *call, g *guest) (any, error) {
	s, target, pool := c.s, c.get("target"), c.get("pool")
	id, _ := strconv.Atoi(c.get("newid")) //nolint:errcheck // 0 is no guest's id
	if target == g.Node {
		target = ""
	}
	if err := c.caller.checkVM(id, pool, "VM.Allocate"); err != nil {
		return nil, err
	}
	switch _, known := s.pools[pool]; {
	case id == 0:
		return nil, badParameter("newid", "property is missing and it is not optional\n")
	case pool != "" && !known:
		return nil, internal("pool '%s' does not exist", pool)
	}
	full := c.flag("full") || !c.request.Params.Has("full") && g.Config["template"] != "1"
	plan, err := c.planClone(g, target, full)
	if err != nil {
		return nil, err
	}
	if s.guests[id] != nil {
		return nil, internal("unable to create VM %d: config file already exists", id)
	}
	copied := &guest{ID: id, Node: g.Node, Kind: "qemu", Config: map[string]string{"lock": "clone"}}
	s.guests[id] = copied
	t := c.launch("qmclone", g.ID, func(*task) error {
		if s.guests[id] != copied {
			return errors.New("clone failed: the new guest has disappeared")
		}
		copied.fill(c, g, plan)
		if copied.Pool = pool; target != "" {
			copied.Node = target
		}
		return nil
	})
	t.undo = func() { delete(s.guests, id) }
	// The configuration file has its options while the disks are copied.
	copied.set("name", cmp.Or(c.get("name"), "Copy-of-VM-"+g.name()))
	copied.set("description", cmp.Or(c.get("description"), g.Config["description"]))
	copied.set("smbios1", "uuid="+uuid())
	return t.upid, nil
}

// planClone chooses the storage and the base of each copied disk. Its errors are those of a real node before
// it starts a worker.
func (c *call) planClone(g *guest, target string, full bool) (map[string]Disk, error) {
	s, storage, plan := c.s, c.get("storage"), map[string]Disk{}
	if storage != "" {
		switch st, err := s.config.storage(storage); {
		case err != nil:
			return nil, err
		case target != "" && !st.Shared:
			return nil, internal("can't clone to non-shared storage '%s'", storage)
		}
	}
	if err := g.locked(); err != nil {
		return nil, internal("%v", err)
	}
	if storage != "" && !full {
		return nil, internal("parameter 'storage' not allowed for linked clones")
	}
	shared := true
	for _, key := range sortedKeys(g.Config) {
		volume, _, _ := strings.Cut(g.Config[key], ",")
		d := s.disks.get(g.Node, volume)
		if kindOf(key) != drive || d == nil {
			continue
		}
		from, _, _ := strings.Cut(volume, ":")
		shared = shared && s.disks.isShared(volume)
		if err := c.caller.check("/storage/"+cmp.Or(storage, from), "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
		base := g.Config["template"] == "1" && strings.Contains(volume, "base-")
		if !full && !base {
			return nil, internal("Linked clone feature is not supported for '%s' (%s)", volume, key)
		}
		copied := Disk{Size: d.Size, Format: d.Format, Volume: cmp.Or(storage, from)}
		if !full {
			copied.Source = volume
		}
		plan[key] = copied
	}
	if target != "" && !shared {
		return nil, internal("can't clone VM to node '%s' (VM uses local storage)", target)
	}
	return plan, nil
}

// fill copies the options of a guest, and its disks.
func (g *guest) fill(c *call, of *guest, plan map[string]Disk) {
	own, s := maps.Clone(g.Config), c.s
	for _, key := range sortedKeys(of.Config) {
		value := of.Config[key]
		switch volume, rest, _ := strings.Cut(value, ","); {
		case key == "template" || key == "parent" || isUnused(key):
		case kindOf(key) == nic: // of the same model, on the same bridge
			model, rest, _ := strings.Cut(value, "=")
			_, rest, _ = strings.Cut(rest, ",")
			g.Config[key], _ = g.card(key, model+","+rest) //nolint:errcheck // the guest has it
		case plan[key].Volume != "":
			st, _ := s.config.storage(plan[key].Volume) //nolint:errcheck // the plan knows it
			d := plan[key]
			d.Owner, d.Content = g.ID, "images"
			d.Volume = s.freeName(g.Node, st, g.ID, cmp.Or(d.Format, "raw"))
			if base := d.Source; base != "" && st.holdsFiles() { // nfs:9000/base-9000-disk-0.qcow2/521/vm-…
				_, name, _ := strings.Cut(d.Volume, ":")
				d.Volume = base + "/" + name
			}
			s.disks.store(g.Node, d)
			g.Config[key] = strings.TrimSuffix(d.Volume+","+rest, ",")
			if g.Image == "" {
				g.Image = volume[strings.LastIndexAny(volume, ":/")+1:]
			}
		default:
			g.Config[key] = value
		}
	}
	maps.Copy(g.Config, own)
	g.set("lock", "")
	g.Config["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
	g.Config["vmgenid"] = uuid()
}
