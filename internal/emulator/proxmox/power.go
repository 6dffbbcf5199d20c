package proxmox

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// power answers the calls that start, stop and delete guests.
type power struct{ guests *guests }

func (p *power) routes() []route {
	manage := func(verb string, do func(*guest) error, hooks ...func(VM)) route {
		handle := p.guests.on("VM.PowerMgmt", p.verb(verb, do, hooks...))
		return route{"POST", guestPath + "/status/" + verb, handle}
	}
	c := p.guests.config
	return []route{
		{"DELETE", guestPath, p.guests.on("VM.Allocate", p.destroy)},
		{"GET", guestPath + "/status/current", p.guests.on("VM.Audit", status)},
		manage("start", start, c.OnStart),
		manage("stop", stop, c.OnStop),
		manage("shutdown", shutdown, c.OnStop),
		manage("reboot", reboot, c.OnStop, c.OnStart),
	}
}

func status(_ *call, g *guest) (any, error) {
	out := g.row()
	out["qmpstatus"] = g.status()
	out["cpus"] = out["maxcpu"]
	delete(out, "maxcpu")
	out["ha"] = map[string]any{"managed": number(g.HA)}
	if g.Running {
		out["pid"] = 20000 + g.ID
	}
	if g.agent() {
		out["agent"] = 1
	}
	return out, nil
}

// errStopped ends a stop successfully that has nothing to stop, without its hook.
var errStopped = errors.New("already stopped")

// verb starts the task of a status verb. Under high availability the call only
// leaves a request, whose task ends at once.
func (p *power) verb(verb string, do func(*guest) error, hooks ...func(VM)) func(*call, *guest) (any, error) {
	return func(c *call, g *guest) (any, error) {
		id, changed := strconv.Itoa(g.ID), true
		work := job{node: g.Node, kind: "qm" + verb, id: id}
		work.do = func(*task) error {
			if p.guests.all[g.ID] != g {
				return missing(g.Node, "qemu", g.ID)
			}
			if err := g.locked(); err != nil {
				return err
			}
			err := do(g)
			if errors.Is(err, errStopped) {
				changed, err = false, nil
			}
			return err
		}
		work.after = func() {
			for _, hook := range hooks {
				if changed {
					p.guests.notify(hook, g.ID)
				}
			}
		}
		if !g.HA || verb == "reboot" {
			return p.guests.tasks.launch(c, work), nil
		}
		kind := "ha" + strings.Replace(verb, "shutdown", "stop", 1)
		upid := p.guests.tasks.launch(c, job{node: g.Node, kind: kind, id: id})
		p.guests.tasks.launch(&call{user: "root@pam"}, work)
		return upid, nil
	}
}

func start(g *guest) error {
	switch {
	case g.Config["template"] == "1":
		return errors.New("you can't start a vm if it's a template")
	case g.Running:
		return fmt.Errorf("VM %d already running", g.ID)
	}
	g.Running, g.Started = true, time.Now()
	return nil
}

func stop(g *guest) error {
	if !g.Running {
		return errStopped
	}
	g.Running = false
	return nil
}

// shutdown always works: every guest obeys.
func shutdown(g *guest) error {
	if !g.Running {
		return fmt.Errorf("VM %d not running", g.ID)
	}
	return stop(g)
}

func reboot(g *guest) error {
	if !g.Running {
		return fmt.Errorf("VM %d not running", g.ID)
	}
	g.Started = time.Now()
	return nil
}

// destroy handles DELETE nodes/{node}/qemu/{vmid}.
func (p *power) destroy(c *call, g *guest) (any, error) {
	purge, unreferenced := c.flag("purge"), c.flag("destroy-unreferenced-disks")
	check := func() error {
		switch {
		case g.Config["protection"] == "1":
			return internal("can't remove VM %d - protection mode enabled", g.ID)
		case g.HA && !purge:
			return internal("unable to remove VM %d - used in HA resources and purge parameter not set.",
				g.ID)
		case g.Replicated && !purge:
			return internal("There is a replication job '%d-0' for guest '%[1]d' - Please remove that first.",
				g.ID)
		case g.Running:
			return internal("VM %d is running - destroy failed", g.ID)
		}
		return nil
	}
	if err := check(); err != nil {
		return nil, err
	}
	s := p.guests
	var deleted VM
	j := job{node: g.Node, kind: "qmdestroy", id: strconv.Itoa(g.ID)}
	j.do = func(t *task) error {
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
		for key, d := range s.storage.volumes {
			if unreferenced && key.node == g.Node && d.Owner == g.ID && !slices.Contains(own, d.Volume) {
				own = append(own, d.Volume)
			}
		}
		for _, volume := range own {
			if d := s.storage.volumes[volumeKey{g.Node, volume}]; d != nil && d.Stuck {
				t.warn("Could not remove disk '%s', check manually: lvremove '%[1]s' error: "+
					"Logical volume in use.", volume)
				continue
			}
			s.storage.free(g.Node, volume)
		}
		deleted = g.view()
		delete(s.all, g.ID)
		return nil
	}
	j.after = func() {
		if s.config.OnDestroy != nil {
			s.config.OnDestroy(deleted)
		}
	}
	return s.tasks.launch(c, j), nil
}
