package proxmox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// create handles POST nodes/{node}/qemu. The id is taken and locked at once; name,
// options and disks appear when the task is done.
func (s *guests) create(c *call) (any, error) {
	node := c.vars["node"]
	id, err := strconv.Atoi(c.get("vmid"))
	if err != nil || id < 100 {
		return nil, badParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
	}
	if pool := c.get("pool"); s.config.Pool != "" && pool != s.config.Pool {
		return nil, forbidden("", "")
	} else if _, ok := s.pools[pool]; pool != "" && !ok {
		return nil, internal("pool '%s' does not exist", pool)
	}
	g := &guest{ID: id, Node: node, Kind: "qemu", Config: map[string]string{"lock": "create"}}
	change, err := s.validate(g, c)
	if err != nil {
		return nil, err
	}
	if other := s.all[id]; other != nil {
		kind := map[string]string{"lxc": "CT", "qemu": "VM"}[other.Kind]
		return nil, internal("unable to create VM %d - %s %[1]d already exists on node '%[3]s'", id, kind,
			other.Node)
	}
	s.all[id] = g
	j := job{node: node, kind: "qmcreate", id: strconv.Itoa(id), undo: func() { delete(s.all, id) }}
	j.do = func(*task) error {
		options := change.apply(s.storage, g)
		options["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
		if options["smbios1"] == "" {
			options["smbios1"] = "uuid=" + uuid()
		}
		if options["vmgenid"] == "" {
			options["vmgenid"] = uuid()
		}
		delete(options, "lock")
		g.Config, g.Pool = options, c.get("pool")
		if c.flag("start") {
			g.Running, g.Started = true, time.Now()
		}
		return nil
	}
	j.after = func() {
		if c.flag("start") {
			s.notify(s.config.OnStart, id)
		}
	}
	return s.tasks.launch(c, j), nil
}

// notify calls a hook with a guest as it is now.
func (s *guests) notify(hook func(VM), id int) {
	if hook == nil {
		return
	}
	s.mu.Lock()
	g, v := s.all[id], VM{}
	if g != nil {
		v = g.view()
	}
	s.mu.Unlock()
	if g != nil {
		hook(v)
	}
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// change is a set of valid options that wait to be applied.
type change struct {
	plain   map[string]string
	drives  map[string]drivePlan
	deletes []string
}

// validate checks every parameter that is a configuration option.
func (s *guests) validate(g *guest, c *call) (change, error) {
	ch := change{plain: map[string]string{}, drives: map[string]drivePlan{}}
	for _, key := range sortedKeys(c.params) {
		value := c.get(key)
		var err error
		switch key {
		case "vmid", "node", "pool", "start", "digest", "background_delay", "force", "unique":
		case "skiplock":
			err = rootOnly()
		case "delete":
			for _, name := range splitList(value) {
				if kindOf(name) == unknown && !strings.HasPrefix(name, "unused") {
					return ch, badParameter("delete", fmt.Sprintf("unknown option '%s'", name))
				}
				ch.deletes = append(ch.deletes, name)
			}
		default:
			switch kindOf(key) {
			case drive:
				ch.drives[key], err = s.storage.planDrive(g.Node, key, value)
			case nic:
				ch.plain[key], err = g.card(key, value)
			default:
				ch.plain[key], err = plain(key, value)
			}
		}
		if err != nil {
			return ch, err
		}
	}
	return ch, nil
}

// apply returns the guest's options after the change. A drive that is detached or
// replaced stays as unusedN; deleting an unusedN frees it.
func (ch change) apply(s *storages, g *guest) map[string]string {
	options := maps.Clone(g.Config)
	for _, key := range ch.deletes {
		switch {
		case kindOf(key) == drive:
			g.detach(s, options, key)
		case strings.HasPrefix(key, "unused"):
			s.free(g.Node, options[key])
		}
		delete(options, key)
	}
	maps.Copy(options, ch.plain)
	for _, key := range sortedKeys(ch.drives) {
		plan := ch.drives[key]
		if plan.fresh || plan.cloudInit || !strings.HasPrefix(options[key], plan.volume) {
			g.detach(s, options, key)
		}
		options[key] = s.attach(g, key, plan)
	}
	return options
}

func (g *guest) detach(s *storages, options map[string]string, key string) {
	volume, _, _ := strings.Cut(options[key], ",")
	delete(options, key)
	switch {
	case ownerOf(volume) != g.ID:
		return
	case strings.Contains(volume, "cloudinit"):
		s.free(g.Node, volume)
		return
	}
	n := 0
	for options["unused"+strconv.Itoa(n)] != "" {
		n++
	}
	options["unused"+strconv.Itoa(n)] = volume
}

// update handles PUT …/config: at once and without a task.
func (s *guests) update(c *call, g *guest) (any, error) {
	if digest := c.get("digest"); digest != "" && digest != g.digest() {
		return nil, internal("detected modified configuration - file changed by other user? Try again.")
	}
	if err := g.locked(); err != nil {
		return nil, err
	}
	change, err := s.validate(g, c)
	if err != nil {
		return nil, err
	}
	g.Config = change.apply(s.storage, g)
	return nil, nil
}

// updateTask handles POST …/config: the same as a task.
func (s *guests) updateTask(c *call, g *guest) (any, error) {
	change, err := s.validate(g, c)
	if err != nil {
		return nil, err
	}
	return s.tasks.launch(c, job{node: g.Node, kind: "qmconfig", id: c.vars["vmid"], do: func(*task) error {
		if err := g.locked(); err != nil {
			return err
		}
		g.Config = change.apply(s.storage, g)
		return nil
	}}), nil
}

// resize handles PUT …/resize.
func (s *guests) resize(c *call, g *guest) (any, error) {
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
	return s.tasks.launch(c, job{node: g.Node, kind: "resize", id: strconv.Itoa(g.ID), do: func(*task) error {
		d := s.storage.volumes[volumeKey{g.Node, volume}]
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
	}}), nil
}
