package proxmox

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// create takes the id and locks it at once; name, options and disks appear when the task is done.
func create(c *call) (any, error) {
	s, id, pool := c.s, c.vmid(), c.get("pool")
	switch {
	case id == 0:
		return nil, badParameter("vmid", "property is missing and it is not optional\n")
	case pool != "" && !s.pools[pool]:
		return nil, forbidden(fmt.Sprintf(" (pool '%s' does not exist)", pool))
	case c.caller.checkVM(id, pool, "VM.Allocate") != nil:
		return nil, forbidden("")
	}
	if err := c.checkOptions(id, pool); err != nil {
		return nil, err
	}
	if c.flag("start") {
		if err := c.caller.checkVM(id, pool, "VM.PowerMgmt"); err != nil {
			return nil, err
		}
	}
	g := &guest{ID: id, Node: c.get("node"), Kind: "qemu", Config: map[string]string{"lock": "create"}}
	if c.get("archive") != "" {
		return restore(c, g, pool)
	}
	if err := c.checkBalloon(g); err != nil {
		return nil, err
	}
	change, err := c.change(g)
	if err != nil {
		return nil, err
	}
	if other := s.guests[id]; other != nil {
		kind := map[string]string{"lxc": "CT", "qemu": "VM"}[other.Kind]
		return nil, internal("unable to create VM %d - %s %[1]d already exists on node '%[3]s'", id, kind,
			other.Node)
	}
	s.guests[id] = g
	t := c.launch("qmcreate", id, func(t *task) error {
		// Since 9.2 a machine with tags is checked again, before it is in its pool.
		if err := c.caller.check(vmPath(id), "VM.Config.Options"); c.get("tags") != "" && err != nil &&
			!s.config.before(9, 2) {
			delete(s.guests, id)
			return fmt.Errorf("unable to create VM %d - %w", id, err)
		}
		change.apply(s, g)
		g.Config["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
		g.Config["smbios1"] = cmp.Or(g.Config["smbios1"], "uuid="+uuid())
		g.Config["vmgenid"] = cmp.Or(g.Config["vmgenid"], uuid())
		g.set("lock", "")
		g.Pool = pool
		if c.flag("start") {
			return start(t, g)
		}
		return nil
	})
	t.undo = func() { delete(s.guests, id) }
	return t.upid, nil
}

func uuid() string {
	b := make([]byte, 16)
	rand.Read(b) //nolint:errcheck // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// change is a set of valid options that wait to be applied.
type change struct {
	plain   map[string]string
	drives  map[string]drivePlan
	deletes []string
	force   bool // deletes volumes, too
}

// change checks every parameter that is a configuration option.
func (c *call) change(g *guest) (change, error) {
	ch := change{map[string]string{}, map[string]drivePlan{}, splitList(c.get("delete")), c.flag("force")}
	for _, name := range ch.deletes {
		if kindOf(name) == unknown && !isUnused(name) {
			return ch, badParameter("delete", "unknown option '%s'", name)
		}
	}
	for _, key := range sortedKeys(c.request.Params) {
		var err error
		switch value := c.get(key); kindOf(key) {
		case argument:
		case drive:
			ch.drives[key], err = c.planDrive(g.Node, key, value)
		case nic:
			ch.plain[key], err = g.card(key, value)
		default:
			ch.plain[key], err = plain(key, value)
		}
		if err != nil {
			return ch, err
		}
	}
	return ch, nil
}

// apply changes the guest's options, or keeps what waits for its start. A drive that is detached or replaced
// stays as unusedN, unless force deletes its volume; deleting an unusedN frees it, and attaching its volume
// removes the unusedN.
func (ch change) apply(s *Server, g *guest) {
	if !g.Running {
		g.settle(s)
	}
	for _, key := range ch.deletes {
		volume, _, _ := strings.Cut(g.Config[key], ",")
		switch {
		case kindOf(key) == drive && ch.force && ownerOf(volume) == g.ID && g.follows(key, ""):
			s.disks.free(g.Node, volume)
			g.set(key, "")
		case isUnused(key):
			s.disks.free(g.Node, g.Config[key])
		}
		g.assign(s, key, "")
	}
	for _, key := range sortedKeys(ch.plain) {
		g.assign(s, key, ch.plain[key])
	}
	for _, key := range sortedKeys(ch.drives) {
		plan := ch.drives[key]
		g.assign(s, key, plan.attach(s, g))
		maps.DeleteFunc(g.Config, func(other, volume string) bool {
			return isUnused(other) && volume == plan.volume
		})
	}
}

func (g *guest) detach(s *Server, key string) {
	volume, _, _ := strings.Cut(g.Config[key], ",")
	delete(g.Config, key)
	switch {
	case ownerOf(volume) != g.ID:
		return
	case strings.Contains(volume, "cloudinit"):
		s.disks.free(g.Node, volume)
		return
	}
	g.addUnused(volume)
}

// update changes the configuration without a task.
func update(c *call, g *guest) (any, error) {
	if err := c.checkOptions(g.ID, ""); err != nil {
		return nil, err
	}
	if err := c.checkDrives(g); err != nil {
		return nil, err
	}
	if digest := c.get("digest"); digest != "" && digest != g.digest() {
		return nil, internal("detected modified configuration - file changed by other user? Try again.")
	}
	if err := cmp.Or(g.locked(), c.checkBalloon(g)); err != nil {
		return nil, err
	}
	change, err := c.change(g)
	if err != nil {
		return nil, err
	}
	for _, key := range change.deletes {
		volume, _, _ := strings.Cut(g.Config[key], ",")
		if (change.force || isUnused(key)) && g.usedBySnapshot(volume) {
			return nil, internal("unable to delete '%s' - volume is still in use (snapshot?)", volume)
		}
	}
	unplugged, card := change.unplugged(c.s, g), g.Config["net0"]
	change.apply(c.s, g)
	if hook := c.s.config.OnNetwork; hook != nil && g.Running && g.Config["net0"] != card {
		v := g.view()
		c.after = func() { hook(v) }
	}
	return nil, unplugged
}

func resize(c *call, g *guest) (any, error) {
	if err := g.locked(); err != nil {
		return nil, err
	}
	key := c.get("disk")
	want, relative := strings.CutPrefix(c.get("size"), "+")
	size, ok := parseSize(want)
	volume, _, _ := strings.Cut(g.Config[key], ",")
	switch {
	case !ok:
		return nil, badParameter("size", "value does not match the regex pattern\n")
	case volume == "":
		return nil, internal("disk '%s' does not exist", key)
	case strings.Contains(g.Config[key], "media=cdrom"):
		return nil, internal("you can't resize a cdrom")
	}
	return c.launch("resize", g.ID, func(*task) error {
		d := c.s.disks.get(g.Node, volume)
		if d == nil {
			return internal("Could not determine current size of volume '%s'", volume)
		}
		if relative {
			size += d.Size
		}
		if size < d.Size {
			return errors.New("shrinking disks is not supported")
		}
		d.Size = size
		g.Config[key] = setDriveSize(g.Config[key], size)
		return nil
	}).upid, nil
}
