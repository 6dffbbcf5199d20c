package proxmox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *Server) current(c *call) (any, error) {
	m, err := s.guest(c, "VM.Audit")
	if err != nil {
		return nil, err
	}
	out := m.row()
	out["qmpstatus"] = m.status()
	out["cpus"] = out["maxcpu"]
	delete(out, "maxcpu")
	out["ha"] = map[string]any{"managed": number(m.ha)}
	if m.running {
		out["pid"] = 20000 + m.id
	}
	if m.agent() {
		out["agent"] = 1
	}
	return out, nil
}

// tell calls a hook with a guest as it is now.
func (s *Server) tell(hook func(VM), id int) {
	if hook == nil {
		return
	}
	s.mu.Lock()
	m := s.machines[id]
	var v VM
	if m != nil {
		v = m.view()
	}
	s.mu.Unlock()
	if m != nil {
		hook(v)
	}
}

// power starts a task of one of the status verbs. do returns what must be told
// afterwards; under high availability the verb only leaves a request.
func (s *Server) power(c *call, verb string, do func(*machine) error, after func(id int)) (any, error) {
	if c.get("skiplock") != "" {
		return nil, badParameter("skiplock", "Only root may use this option.")
	}
	m, err := s.guest(c, "VM.PowerMgmt")
	if err != nil {
		return nil, err
	}
	id := strconv.Itoa(m.id)
	work := job{node: m.node, kind: "qm" + verb, id: id, after: func() { after(m.id) }, do: func(*task) error {
		if s.machines[m.id] != m {
			return missing(m.node, "qemu", m.id)
		}
		if lock := m.options["lock"]; lock != "" {
			return locked(lock)
		}
		return do(m)
	}}
	if !m.ha || verb == "reboot" {
		return s.launch(c, work), nil
	}
	request := job{node: m.node, kind: "ha" + strings.Replace(verb, "shutdown", "stop", 1), id: id, do: func(*task) error { return nil }}
	upid := s.launch(c, request)
	s.launch(&call{user: "root@pam"}, work)
	return upid, nil
}

func (s *Server) start(c *call) (any, error) {
	return s.power(c, "start", func(m *machine) error {
		switch {
		case m.options["template"] == "1":
			return errors.New("you can't start a vm if it's a template")
		case m.running:
			return fmt.Errorf("VM %d already running", m.id)
		}
		m.running, m.started = true, time.Now()
		return nil
	}, func(id int) { s.tell(s.config.OnStart, id) })
}

func (s *Server) stop(c *call) (any, error) { return s.halt(c, "stop") }

// shutdown asks the guest; every guest here obeys.
func (s *Server) shutdown(c *call) (any, error) { return s.halt(c, "shutdown") }

func (s *Server) halt(c *call, verb string) (any, error) {
	ran := false
	return s.power(c, verb, func(m *machine) error {
		if ran = m.running; !ran && verb == "shutdown" {
			return fmt.Errorf("VM %d not running", m.id)
		}
		m.running = false
		return nil
	}, func(id int) {
		if ran {
			s.tell(s.config.OnStop, id)
		}
	})
}

func (s *Server) reboot(c *call) (any, error) {
	return s.power(c, "reboot", func(m *machine) error {
		if !m.running {
			return fmt.Errorf("VM %d not running", m.id)
		}
		m.started = time.Now()
		return nil
	}, func(id int) {
		s.tell(s.config.OnStop, id)
		s.tell(s.config.OnStart, id)
	})
}

// destroy is DELETE nodes/{node}/qemu/{vmid}.
func (s *Server) destroy(c *call) (any, error) {
	if c.get("skiplock") != "" {
		return nil, badParameter("skiplock", "Only root may use this option.")
	}
	m, err := s.guest(c, "VM.Allocate")
	if err != nil {
		return nil, err
	}
	purge, unreferenced := c.flag("purge"), c.flag("destroy-unreferenced-disks")
	check := func() error {
		switch {
		case m.options["protection"] == "1":
			return internal("can't remove VM %d - protection mode enabled", m.id)
		case m.ha && !purge:
			return internal("unable to remove VM %d - used in HA resources and purge parameter not set.", m.id)
		case m.replicated && !purge:
			return internal("There is a replication job '%d-0' for guest '%d' - Please remove that first.", m.id, m.id)
		case m.running:
			return internal("VM %d is running - destroy failed", m.id)
		}
		return nil
	}
	if err := check(); err != nil {
		return nil, err
	}
	var gone VM
	return s.launch(c, job{node: m.node, kind: "qmdestroy", id: strconv.Itoa(m.id), do: func(t *task) error {
		if s.machines[m.id] != m {
			return missing(m.node, "qemu", m.id)
		}
		if err := check(); err != nil {
			return err
		}
		if lock := m.options["lock"]; lock != "" && lock != "suspended" {
			return locked(lock)
		}
		own := m.ownVolumes()
		for key, d := range s.volumes {
			if unreferenced && key.node == m.node && d.Owner == m.id && !slices.Contains(own, d.Volume) {
				own = append(own, d.Volume)
			}
		}
		for _, volume := range own {
			if d := s.volumes[volumeKey{m.node, volume}]; d != nil && d.Stuck {
				t.warn("Could not remove disk '%s', check manually: lvremove '%s' error: Logical volume in use.", volume, volume)
				continue
			}
			s.free(m.node, volume)
		}
		gone = m.view()
		gone.Config = maps.Clone(m.options)
		delete(s.machines, m.id)
		return nil
	}, after: func() {
		if s.config.OnDestroy != nil {
			s.config.OnDestroy(gone)
		}
	}}), nil
}
