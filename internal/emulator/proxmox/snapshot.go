package proxmox

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
func listSnapshots(_ *call, g *guest) (any, error) {
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
		add(map[string]any{"name": name, "snaptime": s.taken.Unix(), "vmstate": number(s.vmstate != ""),
			"description": s.description}, s.parent, s.state)
	}
	add(map[string]any{"name": "current", "digest": g.digest(), "running": number(g.Running),
		"description": "You are here!"}, g.Config["parent"], "")
	return rows, nil
}

// takeSnapshot copies the configuration at once, with a lock; the snapshot counts when its task has ended.
func takeSnapshot(c *call, g *guest) (any, error) {
	name := c.get("snapname")
	switch {
	case !snapshotName.MatchString(name):
		return nil, badParameter("snapname", "invalid format - invalid configuration ID '%s'\n", name)
	case name == "current" || strings.EqualFold(name, "pending"):
		return nil, internal("unable to use snapshot name '%s' (reserved name)", strings.ToLower(name))
	}
	refused := g.locked()
	switch {
	case g.Config["template"] == "1":
		refused = errors.New("you can't take a snapshot if it's a template")
	case refused != nil:
	case g.snapshots[name] != nil:
		refused = fmt.Errorf("snapshot name '%s' already used", name)
	case !c.s.snapshots(g):
		refused = errors.New("snapshot feature is not available")
	}
	if refused != nil {
		return c.launch("qmsnapshot", g.ID, func(*task) error { return refused }).upid, nil
	}
	taken := &snapshot{config: g.kept(), description: c.get("description"), parent: g.Config["parent"],
		state: "prepare", taken: time.Now()}
	if c.flag("vmstate") && g.Running {
		taken.vmstate = c.s.storeMemory(g, name)
	}
	if g.snapshots == nil {
		g.snapshots = map[string]*snapshot{}
	}
	g.snapshots[name] = taken
	g.set("lock", "snapshot")
	t := c.launch("qmsnapshot", g.ID, func(*task) error {
		taken.state = ""
		g.set("parent", name)
		g.set("lock", "")
		return nil
	})
	t.undo = func() { g.drop(c.s, name) }
	return t.upid, nil
}

// onSnapshot is a handler whose task changes a guest by one of its snapshots. If it is stopped, the lock
// stays.
func onSnapshot(kind, lock string, do func(*call, *task, *guest, *snapshot) error) func(*call, *guest) (any,
	error) {
	return func(c *call, g *guest) (any, error) {
		s, refused := g.snapshots[c.get("snapname")], g.locked()
		if refused != nil && c.flag("force") && g.Config["lock"] == lock {
			refused = nil
		}
		switch {
		case s == nil:
			refused = fmt.Errorf("snapshot '%s' does not exist", c.get("snapname"))
		case lock == "rollback" && s.state != "":
			refused = fmt.Errorf("unable to rollback to incomplete snapshot (snapstate = %s)", s.state)
		case refused == nil:
			g.set("lock", lock)
		}
		return c.launch(kind, g.ID, func(t *task) error {
			if refused != nil {
				return refused
			}
			return do(c, t, g, s)
		}).upid, nil
	}
}

func removeSnapshot(c *call, t *task, g *guest, _ *snapshot) error {
	g.drop(t.s, c.get("snapname"))
	return nil
}

// drop frees what only the snapshot has. A disk that the guest had then, and has no more, becomes unused.
func (g *guest) drop(s *Server, name string) {
	gone := g.snapshots[name]
	delete(g.snapshots, name)
	s.disks.free(g.Node, gone.vmstate)
	for _, other := range g.snapshots {
		if other.parent == name {
			other.parent = gone.parent
		}
	}
	if g.Config["parent"] == name {
		g.set("parent", gone.parent)
	}
	g.set("lock", "")
	g.addUnused(g.snapped(gone.config)...)
}

// rollBack stops the guest and gives it the options and the disks of the snapshot. With its memory, or if the
// call wants it, the guest runs on from there.
func rollBack(c *call, t *task, g *guest, s *snapshot) error {
	if err := stop(t, g); err != nil {
		return err
	}
	had, then := g.snapped(g.Config), g.snapped(s.config)
	maps.DeleteFunc(g.Config, func(key, volume string) bool {
		return key != "description" && (!isUnused(key) || slices.Contains(then, volume))
	})
	maps.Copy(g.Config, s.config)
	g.set("parent", c.get("snapname"))
	g.addUnused(had...)
	for _, value := range s.config {
		volume, rest, _ := strings.Cut(value, ",")
		if d := t.s.disks.get(g.Node, volume); d != nil && slices.Contains(then, volume) {
			d.Size, _ = parseSize(parseProperties(rest, "file")["size"]) //nolint:errcheck // it had this size
		}
	}
	if s.vmstate != "" || c.flag("start") {
		return start(t, g)
	}
	return nil
}

func showSnapshot(c *call, g *guest) (any, error) {
	s := g.snapshots[c.get("snapname")]
	if s == nil {
		return nil, internal("snapshot '%s' does not exist", c.get("snapname"))
	}
	was := &guest{Config: maps.Clone(s.config)}
	for key, value := range map[string]string{"parent": s.parent, "description": s.description,
		"snapstate": s.state, "vmstate": s.vmstate} {
		was.set(key, value)
	}
	out := was.show()
	out["snaptime"] = s.taken.Unix()
	return out, nil
}

// kept are the options that a snapshot keeps.
func (g *guest) kept() map[string]string {
	options := maps.Clone(g.Config)
	maps.DeleteFunc(options, func(key, _ string) bool {
		return isUnused(key) || slices.Contains([]string{"lock", "description", "parent"}, key)
	})
	return options
}

// snapped are the disks among options that a snapshot includes: no CD images and no cloud-init drives.
func (g *guest) snapped(options map[string]string) (volumes []string) {
	for _, key := range sortedKeys(options) {
		volume, _, _ := strings.Cut(options[key], ",")
		if kindOf(key) == drive && ownerOf(volume) == g.ID && !strings.Contains(options[key], "media=cdrom") {
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// usedBySnapshot reports whether a snapshot has a disk.
func (g *guest) usedBySnapshot(volume string) bool {
	for _, s := range g.snapshots {
		if slices.Contains(g.snapped(s.config), volume) {
			return true
		}
	}
	return false
}

// addUnused keeps disks that no option names any more.
func (g *guest) addUnused(volumes ...string) {
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
func (s *Server) snapshots(g *guest) bool {
	for _, volume := range g.snapped(g.Config) {
		id, _, _ := strings.Cut(volume, ":")
		st, err := s.config.storage(id)
		d := s.disks.get(g.Node, volume)
		if err != nil || d == nil || st.holdsFiles() && d.Format != "qcow2" {
			return false
		}
	}
	return true
}

// storeMemory makes the volume of a running guest's memory, twice as large as that: on vmstatestorage, else
// on shared storage that its disks are on, else on that of the first one.
func (s *Server) storeMemory(g *guest, name string) (volume string) {
	id := ""
	for _, disk := range g.snapped(g.Config) {
		storage, _, _ := strings.Cut(disk, ":")
		if id = cmp.Or(id, storage); s.disks.isShared(disk) {
			id = storage
			break
		}
	}
	st, err := s.config.storage(cmp.Or(g.Config["vmstatestorage"], id, "local"))
	if err != nil {
		return ""
	}
	memory, _ := strconv.Atoi(g.Config["memory"]) //nolint:errcheck // 0 becomes the default
	volume = st.image(g.ID, "state-"+name, "raw")
	s.disks.store(g.Node, Disk{Volume: volume, Owner: g.ID, Format: "raw", Content: "images",
		Size: int64(2*cmp.Or(memory, 512)+500) << 20})
	return volume
}

// migratable is the error for a guest whose snapshots keep a disk of its own node there: other storages than
// those of qcow2 files move no snapshots, and none moves them while the guest runs.
func (g *guest) migratable(s *Server) error {
	for _, volume := range slices.Sorted(maps.Keys(g.ownVolumes())) {
		switch d := s.disks.get(g.Node, volume); {
		case d == nil || s.disks.isShared(volume) || !g.usedBySnapshot(volume):
		case g.Running:
			return errors.New("online storage migration not possible if non-replicated snapshot exists")
		case d.Format != "qcow2":
			return errors.New("non-migratable snapshot exists")
		}
	}
	return nil
}
