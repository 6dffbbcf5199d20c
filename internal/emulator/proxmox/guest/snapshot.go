package guest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
)

// snapshot is a guest as it was (pve-guest-common's PVE/AbstractConfig.pm, qemu-server's PVE/QemuConfig.pm).
type snapshot struct {
	config              map[string]string // without its lock, its description and its unused disks
	parent, description string
	state               string // prepare or delete, until its task has ended
	vmstate             string // the volume with the guest's memory
	taken               time.Time
}

var snapshotName = regexp.MustCompile(`^[A-Za-z][\w-]{1,39}$`)

// listSnapshots lists the snapshots, and the guest as it is now.
func listSnapshots(_ *rpc.Call, g *Guest) (any, error) {
	rows := []any{}
	add := func(row map[string]any, parent, state string) {
		for key, value := range map[string]string{"parent": parent, "snapstate": state} {
			if value != "" {
				row[key] = value
			}
		}
		rows = append(rows, row)
	}
	for _, name := range sortedKeys(g.snapshots) {
		s := g.snapshots[name]
		add(map[string]any{"name": name, "snaptime": s.taken.Unix(),
			"vmstate": option.Number(s.vmstate != ""), "description": s.description}, s.parent, s.state)
	}
	add(map[string]any{"name": "current", "digest": g.digest(), "running": option.Number(g.Running),
		"description": "You are here!"}, g.Config["parent"], "")
	return rows, nil
}

// takeSnapshot copies the configuration at once, with a lock; the snapshot counts when its task has ended.
func (s *Guests) takeSnapshot(c *rpc.Call, g *Guest) (any, error) {
	name := c.Get("snapname")
	switch {
	case !snapshotName.MatchString(name):
		return nil, failure.BadParameter("snapname", "invalid format - invalid configuration ID '%s'\n", name)
	case name == "current" || strings.EqualFold(name, "pending"):
		return nil, failure.Internal("unable to use snapshot name '%s' (reserved name)",
			strings.ToLower(name))
	}
	refused := g.locked()
	switch {
	case g.Config["template"] == "1":
		refused = errors.New("you can't take a snapshot if it's a template")
	case refused != nil:
	case g.snapshots[name] != nil:
		refused = fmt.Errorf("snapshot name '%s' already used", name)
	case !s.snapshots(g):
		refused = errors.New("snapshot feature is not available")
	}
	if refused != nil {
		return c.Launch("qmsnapshot", g.ID, func(*rpc.Task) error { return refused }).UPID, nil
	}
	taken := &snapshot{config: g.kept(), description: c.Get("description"), parent: g.Config["parent"],
		state: "prepare", taken: time.Now()}
	if c.Flag("vmstate") && g.Running {
		taken.vmstate = s.storeMemory(g, name)
	}
	if g.snapshots == nil {
		g.snapshots = map[string]*snapshot{}
	}
	g.snapshots[name] = taken
	g.Set("lock", "snapshot")
	t := c.Launch("qmsnapshot", g.ID, func(*rpc.Task) error {
		taken.state = ""
		g.Set("parent", name)
		g.Set("lock", "")
		return nil
	})
	t.Undo = func() { g.drop(s, name) }
	return t.UPID, nil
}

// onSnapshot is a handler whose task changes a guest by one of its snapshots. If it is stopped, the lock
// stays.
func onSnapshot(kind, lock string, do func(*rpc.Call, *rpc.Task, *Guest, *snapshot) error) guestHandler {
	return func(c *rpc.Call, g *Guest) (any, error) {
		s, refused := g.snapshots[c.Get("snapname")], g.locked()
		if refused != nil && c.Flag("force") && g.Config["lock"] == lock {
			refused = nil
		}
		switch {
		case s == nil:
			refused = fmt.Errorf("snapshot '%s' does not exist", c.Get("snapname"))
		case lock == "rollback" && s.state != "":
			refused = fmt.Errorf("unable to rollback to incomplete snapshot (snapstate = %s)", s.state)
		case refused == nil:
			g.Set("lock", lock)
		}
		return c.Launch(kind, g.ID, func(t *rpc.Task) error {
			if refused != nil {
				return refused
			}
			return do(c, t, g, s)
		}).UPID, nil
	}
}

func (s *Guests) removeSnapshot(c *rpc.Call, t *rpc.Task, g *Guest, _ *snapshot) error {
	g.drop(s, c.Get("snapname"))
	return nil
}

// drop frees what only the snapshot has. A disk that the guest had then, and has no more, becomes unused.
func (g *Guest) drop(s *Guests, name string) {
	gone := g.snapshots[name]
	delete(g.snapshots, name)
	s.disks.Free(g.Node, gone.vmstate)
	for _, other := range g.snapshots {
		if other.parent == name {
			other.parent = gone.parent
		}
	}
	if g.Config["parent"] == name {
		g.Set("parent", gone.parent)
	}
	g.Set("lock", "")
	g.addUnused(g.snapped(gone.config)...)
}

// rollBack stops the guest and gives it the options and the disks of the snapshot. With its memory, or if the
// call wants it, the guest runs on from there.
func (s *Guests) rollBack(c *rpc.Call, t *rpc.Task, g *Guest, to *snapshot) error {
	if err := s.stop(t, g); err != nil {
		return err
	}
	had, then := g.snapped(g.Config), g.snapped(to.config)
	maps.DeleteFunc(g.Config, func(key, volume string) bool {
		return key != "description" && (!option.IsUnused(key) || slices.Contains(then, volume))
	})
	maps.Copy(g.Config, to.config)
	g.Set("parent", c.Get("snapname"))
	g.addUnused(had...)
	for _, value := range to.config {
		volume, rest, _ := strings.Cut(value, ",")
		if d := s.disks.Get(g.Node, volume); d != nil && slices.Contains(then, volume) {
			d.Size = option.DriveSize(rest)
		}
	}
	if to.vmstate != "" || c.Flag("start") {
		return s.start(t, g)
	}
	return nil
}

func showSnapshot(c *rpc.Call, g *Guest) (any, error) {
	s := g.snapshots[c.Get("snapname")]
	if s == nil {
		return nil, failure.Internal("snapshot '%s' does not exist", c.Get("snapname"))
	}
	was := &Guest{Config: maps.Clone(s.config)}
	for key, value := range map[string]string{"parent": s.parent, "description": s.description,
		"snapstate": s.state, "vmstate": s.vmstate} {
		was.Set(key, value)
	}
	out := was.show()
	out["snaptime"] = s.taken.Unix()
	return out, nil
}

// kept are the options that a snapshot keeps.
func (g *Guest) kept() map[string]string {
	options := maps.Clone(g.Config)
	maps.DeleteFunc(options, func(key, _ string) bool {
		return option.IsUnused(key) || slices.Contains([]string{"lock", "description", "parent"}, key)
	})
	return options
}

// snapped are the disks among options that a snapshot includes: no CD images and no cloud-init drives.
func (g *Guest) snapped(options map[string]string) (volumes []string) {
	for _, key := range sortedKeys(options) {
		volume, _, _ := strings.Cut(options[key], ",")
		if option.IsDrive(key) && storage.OwnerOf(volume) == g.ID &&
			!strings.Contains(options[key], "media=cdrom") {
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// usedBySnapshot reports whether a snapshot has a disk.
func (g *Guest) usedBySnapshot(volume string) bool {
	for _, s := range g.snapshots {
		if slices.Contains(g.snapped(s.config), volume) {
			return true
		}
	}
	return false
}

// addUnused keeps disks that no option names any more.
func (g *Guest) addUnused(volumes ...string) {
	for _, volume := range volumes {
		named := slices.ContainsFunc(sortedKeys(g.Config), func(key string) bool {
			name, _, _ := strings.Cut(g.Config[key], ",")
			return name == volume
		})
		n := 0
		for g.Config["unused"+strconv.Itoa(n)] != "" {
			n++
		}
		if !named {
			g.Config["unused"+strconv.Itoa(n)] = volume
		}
	}
}

// snapshots reports whether storages can keep an earlier state of a guest's disks: files only as qcow2.
func (s *Guests) snapshots(g *Guest) bool {
	for _, volume := range g.snapped(g.Config) {
		id, _, _ := strings.Cut(volume, ":")
		st, err := s.disks.Storage(id)
		d := s.disks.Get(g.Node, volume)
		if err != nil || d == nil || st.HoldsFiles() && d.Format != "qcow2" {
			return false
		}
	}
	return true
}

// storeMemory makes the volume of a running guest's memory, twice as large as that: on vmstatestorage, else
// on shared storage that its disks are on, else on that of the first one.
func (s *Guests) storeMemory(g *Guest, name string) (volume string) {
	id := ""
	for _, disk := range g.snapped(g.Config) {
		on, _, _ := strings.Cut(disk, ":")
		if id = cmp.Or(id, on); s.disks.IsShared(disk) {
			id = on
			break
		}
	}
	st, err := s.disks.Storage(cmp.Or(g.Config["vmstatestorage"], id, "local"))
	if err != nil {
		return ""
	}
	memory, _ := strconv.Atoi(g.Config["memory"]) //nolint:errcheck // 0 becomes the default
	volume = st.Image(g.ID, "state-"+name, "raw")
	s.disks.Store(g.Node, storage.Disk{Volume: volume, Owner: g.ID, Format: "raw", Content: "images",
		Size: int64(2*cmp.Or(memory, 512)+500) << 20})
	return volume
}

// migratable is the error for a guest whose snapshots keep a disk of its own node there: other storages than
// those of qcow2 files move no snapshots, and none moves them while the guest runs.
func (g *Guest) migratable(s *Guests) error {
	for _, volume := range slices.Sorted(maps.Keys(g.ownVolumes())) {
		switch d := s.disks.Get(g.Node, volume); {
		case d == nil || s.disks.IsShared(volume) || !g.usedBySnapshot(volume):
		case g.Running:
			return errors.New("online storage migration not possible if non-replicated snapshot exists")
		case d.Format != "qcow2":
			return errors.New("non-migratable snapshot exists")
		}
	}
	return nil
}
