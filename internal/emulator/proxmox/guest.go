package proxmox

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// create is POST nodes/{node}/qemu. The id is taken and locked at once; name,
// options and disks appear when the task is done.
func (s *Server) create(c *call) (any, error) {
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
	m := &machine{id: id, node: node, kind: "qemu", options: map[string]string{"lock": "create"}}
	change, err := s.judge(m, c)
	if err != nil {
		return nil, err
	}
	if other := s.machines[id]; other != nil {
		return nil, internal("unable to create VM %d - %s %d already exists on node '%s'", id, short(other.kind), id, other.node)
	}
	s.machines[id] = m
	gone := func() { delete(s.machines, id) }
	j := job{node: node, kind: "qmcreate", id: strconv.Itoa(id), undo: gone}
	started := false
	j.do = func(*task) error {
		options := change.apply(s, m)
		options["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
		setDefault(options, "smbios1", func() string { return "uuid=" + uuid() })
		setDefault(options, "vmgenid", uuid)
		delete(options, "lock")
		m.options, m.pool = options, c.get("pool")
		if started = c.flag("start"); started {
			m.running, m.started = true, time.Now()
		}
		return nil
	}
	j.after = func() {
		if started {
			s.tell(s.config.OnStart, id)
		}
	}
	return s.launch(c, j), nil
}

func short(kind string) string {
	if kind == "lxc" {
		return "CT"
	}
	return "VM"
}

func setDefault(options map[string]string, key string, value func() string) {
	if options[key] == "" {
		options[key] = value()
	}
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// change is a set of options that were judged and wait to be applied.
type change struct {
	plain   map[string]string
	drives  map[string]drivePlan
	deletes []string
}

// judge checks every parameter that is a configuration option.
func (s *Server) judge(m *machine, c *call) (change, error) {
	ch := change{plain: map[string]string{}, drives: map[string]drivePlan{}}
	for _, key := range slices.Sorted(maps.Keys(c.params)) {
		value := c.get(key)
		var err error
		switch key {
		case "vmid", "node", "pool", "start", "digest", "background_delay", "force", "unique":
		case "skiplock":
			err = badParameter(key, "Only root may use this option.")
		case "delete":
			for _, name := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(";, ", r) }) {
				if kindOf(name) == unknown && !strings.HasPrefix(name, "unused") {
					return ch, badParameter("delete", fmt.Sprintf("unknown option '%s'", name))
				}
				ch.deletes = append(ch.deletes, name)
			}
		default:
			switch kindOf(key) {
			case drive:
				ch.drives[key], err = s.planDrive(m.node, key, value)
			case nic:
				ch.plain[key], err = m.card(key, value)
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

// apply returns the guest's options after the change. A drive that is taken
// off or replaced stays as unusedN; taking off an unusedN frees it.
func (ch change) apply(s *Server, m *machine) map[string]string {
	options := maps.Clone(m.options)
	for _, key := range ch.deletes {
		switch {
		case isDrive(key):
			m.detach(s, options, key)
		case strings.HasPrefix(key, "unused"):
			s.free(m.node, options[key])
		}
		delete(options, key)
	}
	maps.Copy(options, ch.plain)
	for _, key := range slices.Sorted(maps.Keys(ch.drives)) {
		plan := ch.drives[key]
		if plan.fresh || plan.cloudInit || !strings.HasPrefix(options[key], plan.volume) {
			m.detach(s, options, key)
		}
		options[key] = s.attach(m, key, plan)
	}
	return options
}

func (m *machine) detach(s *Server, options map[string]string, key string) {
	volume, _, _ := strings.Cut(options[key], ",")
	delete(options, key)
	if ownerOf(volume) != m.id {
		return
	}
	if strings.Contains(volume, "cloudinit") {
		s.free(m.node, volume)
		return
	}
	for n := 0; ; n++ {
		if unused := "unused" + strconv.Itoa(n); options[unused] == "" {
			options[unused] = volume
			return
		}
	}
}

func (s *Server) showConfig(c *call) (any, error) {
	m, err := s.guest(c, "VM.Audit")
	if err != nil {
		return nil, err
	}
	return m.show(), nil
}

func (s *Server) showContainer(c *call) (any, error) {
	m := s.machines[c.vmid()]
	switch {
	case m != nil && !s.sees(m), m == nil && s.config.Pool != "":
		return nil, forbidden(fmt.Sprintf("/vms/%d", c.vmid()), "VM.Audit")
	case m == nil || m.node != c.vars["node"] || m.kind != "lxc":
		return nil, missing(c.vars["node"], "lxc", c.vmid())
	}
	return m.show(), nil
}

// updateConfig is PUT …/config: at once, and without a task.
func (s *Server) updateConfig(c *call) (any, error) {
	m, err := s.guest(c, "VM.Config.Options")
	if err != nil {
		return nil, err
	}
	if digest := c.get("digest"); digest != "" && digest != m.digest() {
		return nil, internal("detected modified configuration - file changed by other user? Try again.")
	}
	if lock := m.options["lock"]; lock != "" {
		return nil, internal("%v", locked(lock))
	}
	change, err := s.judge(m, c)
	if err != nil {
		return nil, err
	}
	m.options = change.apply(s, m)
	return nil, nil
}

// updateConfigTask is POST …/config: the same as a task.
func (s *Server) updateConfigTask(c *call) (any, error) {
	m, err := s.guest(c, "VM.Config.Options")
	if err != nil {
		return nil, err
	}
	change, err := s.judge(m, c)
	if err != nil {
		return nil, err
	}
	return s.launch(c, job{node: m.node, kind: "qmconfig", id: c.vars["vmid"], do: func(*task) error {
		if lock := m.options["lock"]; lock != "" {
			return locked(lock)
		}
		m.options = change.apply(s, m)
		return nil
	}}), nil
}

// regenerate is PUT …/cloudinit, which changes nothing that can be seen.
func (s *Server) regenerate(c *call) (any, error) {
	_, err := s.guest(c, "VM.Config.Cloudinit")
	return nil, err
}

func (s *Server) snapshots(c *call) (any, error) {
	m, err := s.guest(c, "VM.Audit")
	if err != nil {
		return nil, err
	}
	return []any{map[string]any{"name": "current", "description": "You are here!", "digest": m.digest(), "running": number(m.running)}}, nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
