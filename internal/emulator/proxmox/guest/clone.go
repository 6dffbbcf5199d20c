package guest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
)

// clone copies a guest (qemu-server's PVE/API2/Qemu.pm, clone_vm). The copy has the name and description of
// the call at once, and a lock; its uuid and hardware addresses are new. A linked clone's disks are based on
// those of a template, on the same storage. The copy moves to another node at the end, if every disk is on
// shared storage.
func (s *Guests) clone(c *rpc.Call, g *Guest) (any, error) {
	target, pool := c.Get("target"), c.Get("pool")
	id, _ := strconv.Atoi(c.Get("newid")) //nolint:errcheck // 0 is no guest's id
	if target == g.Node {
		target = ""
	}
	if err := c.Caller.CheckVM(id, pool, "VM.Allocate"); err != nil {
		return nil, err
	}
	switch _, known := s.pools[pool]; {
	case id == 0:
		return nil, failure.BadParameter("newid", "property is missing and it is not optional\n")
	case pool != "" && !known:
		return nil, failure.Internal("pool '%s' does not exist", pool)
	}
	full := c.Flag("full") || !c.Request.Params.Has("full") && g.Config["template"] != "1"
	plan, err := s.planClone(c, g, target, full)
	if err != nil {
		return nil, err
	}
	if s.all[id] != nil {
		return nil, failure.Internal("unable to create VM %d: config file already exists", id)
	}
	copied := &Guest{ID: id, Node: g.Node, Kind: "qemu", Config: map[string]string{"lock": "clone"}}
	s.all[id] = copied
	t := c.Launch("qmclone", g.ID, func(*rpc.Task) error {
		if s.all[id] != copied {
			return errors.New("clone failed: the new guest has disappeared")
		}
		copied.fill(s, g, plan)
		if copied.Pool = pool; target != "" {
			copied.Node = target
		}
		return nil
	})
	t.Undo = func() { delete(s.all, id) }
	// The configuration file has its options while the disks are copied.
	copied.Set("name", cmp.Or(c.Get("name"), "Copy-of-VM-"+g.name()))
	copied.Set("description", cmp.Or(c.Get("description"), g.Config["description"]))
	copied.Set("smbios1", "uuid="+uuid.NewString())
	return t.UPID, nil
}

// planClone chooses the storage and the base of each copied disk. Its errors are those of a real node before
// it starts a worker.
func (s *Guests) planClone(c *rpc.Call, g *Guest, target string, full bool) (map[string]storage.Disk, error) {
	onto, plan := c.Get("storage"), map[string]storage.Disk{}
	if onto != "" {
		switch st, err := s.disks.Storage(onto); {
		case err != nil:
			return nil, err
		case target != "" && !st.Shared:
			return nil, failure.Internal("can't clone to non-shared storage '%s'", onto)
		}
	}
	if err := g.locked(); err != nil {
		return nil, failure.Internal("%v", err)
	}
	if onto != "" && !full {
		return nil, failure.Internal("parameter 'storage' not allowed for linked clones")
	}
	shared := true
	for _, key := range sortedKeys(g.Config) {
		volume, _, _ := strings.Cut(g.Config[key], ",")
		d := s.disks.Get(g.Node, volume)
		if !option.IsDrive(key) || d == nil {
			continue
		}
		from, _, _ := strings.Cut(volume, ":")
		shared = shared && s.disks.IsShared(volume)
		if err := c.Caller.Check("/storage/"+cmp.Or(onto, from), "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
		base := g.Config["template"] == "1" && strings.Contains(volume, "base-")
		if !full && !base {
			return nil, failure.Internal("Linked clone feature is not supported for '%s' (%s)", volume, key)
		}
		copied := storage.Disk{Size: d.Size, Format: d.Format, Volume: cmp.Or(onto, from)}
		if !full {
			copied.Source = volume
		}
		plan[key] = copied
	}
	if target != "" && !shared {
		return nil, failure.Internal("can't clone VM to node '%s' (VM uses local storage)", target)
	}
	return plan, nil
}

// fill copies the options of a guest, and its disks.
func (g *Guest) fill(s *Guests, of *Guest, plan map[string]storage.Disk) {
	own := maps.Clone(g.Config)
	for _, key := range sortedKeys(of.Config) {
		value := of.Config[key]
		switch volume, rest, _ := strings.Cut(value, ","); {
		case key == "template" || key == "parent" || option.IsUnused(key):
		case option.KindOf(key) == option.NIC: // of the same model, on the same bridge
			model, rest, _ := strings.Cut(value, "=")
			_, rest, _ = strings.Cut(rest, ",")
			//nolint:errcheck // the guest has it
			g.Config[key], _ = option.Card(key, model+","+rest, g.Config[key])
		case plan[key].Volume != "":
			st, _ := s.disks.Storage(plan[key].Volume) //nolint:errcheck // the plan knows it
			d := plan[key]
			d.Owner, d.Content = g.ID, "images"
			d.Volume = s.disks.FreeName(g.Node, st, g.ID, cmp.Or(d.Format, "raw"))
			if base := d.Source; base != "" && st.HoldsFiles() { // nfs:9000/base-9000-disk-0.qcow2/521/vm-…
				_, name, _ := strings.Cut(d.Volume, ":")
				d.Volume = base + "/" + name
			}
			s.disks.Store(g.Node, d)
			g.Config[key] = strings.TrimSuffix(d.Volume+","+rest, ",")
			if g.Image == "" {
				g.Image = volume[strings.LastIndexAny(volume, ":/")+1:]
			}
		default:
			g.Config[key] = value
		}
	}
	maps.Copy(g.Config, own)
	g.Set("lock", "")
	g.Config["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
	g.Config["vmgenid"] = uuid.NewString()
}
