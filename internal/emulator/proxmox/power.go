package proxmox

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

func showStatus(_ *call, g *guest) (any, error) {
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

// power is the handler of a status verb: it starts the verb's task. Under high availability the call only
// leaves a request, whose task ends at once; a reboot passes it by.
func power(verb string, do func(*task, *guest) error) handler {
	return onGuest("qemu", "VM.PowerMgmt", func(c *call, g *guest) (any, error) {
		work := func(t *task) error {
			if c.s.guests[g.ID] != g {
				return missing(g.Node, "qemu", g.ID)
			}
			if err := g.locked(); err != nil {
				return err
			}
			return do(t, g)
		}
		if verb == "reboot" && !g.Running {
			return nil, internal("VM %d not running", g.ID)
		}
		shuts := verb == "reboot" || verb == "shutdown"
		if !g.HA || verb == "reboot" {
			return c.powered("qm"+verb, g, shuts, work).upid, nil
		}
		states := map[bool]string{true: "started", false: "stopped"}
		c.s.resource(sidOf(g.ID))["state"] = states[verb == "start"]
		worker := &call{s: c.s, request: c.request, caller: caller{id: root}, fault: &Fault{}}
		worker.powered("qm"+verb, g, shuts, work)
		kind := "ha" + strings.Replace(verb, "shutdown", "stop", 1)
		return c.launch(kind, g.ID, func(*task) error { return nil }).upid, nil
	})
}

// powered launches a task that presses the guest's power button first, if it shuts the guest down. The task
// waits for a guest that ignores the button, and fails unless the call forces a stop.
func (c *call) powered(kind string, g *guest, shuts bool, work func(*task) error) *task {
	if !shuts || !g.Running || g.Config["lock"] != "" {
		return c.launch(kind, g.ID, work)
	}
	if g.Deaf {
		seconds, err := strconv.Atoi(c.get("timeout"))
		if err != nil {
			seconds = 60
		}
		patience := cmp.Or(c.s.config.Patience, time.Duration(seconds)*time.Second)
		return c.launchFor(patience, kind, g.ID, nil, func(t *task) error {
			if g.Running && !c.flag("forceStop") {
				return errors.New("VM quit/powerdown failed - got timeout")
			}
			return work(t)
		})
	}
	var press func()
	if hook := c.s.config.OnShutdown; hook != nil {
		v := g.view()
		press = func() { hook(v) }
	}
	return c.launchFor(c.s.config.duration(kind), kind, g.ID, press, work)
}

func start(t *task, g *guest) error {
	switch {
	case g.Config["template"] == "1":
		return errors.New("you can't start a vm if it's a template")
	case g.Running:
		return fmt.Errorf("VM %d already running", g.ID)
	}
	g.settle(t.s)
	if err := g.startable(t); err != nil {
		return err
	}
	g.Running, g.Started = true, time.Now()
	t.tell(t.s.config.OnStart, g)
	return nil
}

// stop has no effect on a guest that is off. What waits for the guest's start is applied when its old process
// has ended.
func stop(t *task, g *guest) error {
	if g.Running {
		g.Running = false
		t.tell(t.s.config.OnStop, g)
	}
	g.settle(t.s)
	return nil
}

// reboot ends when the guest is off. The node itself starts it then, with a task of its own.
func reboot(t *task, g *guest) error {
	t.then = func() {
		node := &call{s: t.s, caller: caller{id: root}, fault: &Fault{}, request: Request{
			Params: url.Values{"node": {g.Node}}}}
		node.launch("qmstart", g.ID, func(t *task) error {
			if t.s.guests[g.ID] != g {
				return missing(g.Node, "qemu", g.ID)
			}
			return start(t, g)
		})
	}
	return stop(t, g)
}

func destroy(c *call, g *guest) (any, error) {
	s := c.s
	check := func() error {
		purge := c.flag("purge")
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
	return c.launch("qmdestroy", g.ID, func(t *task) error {
		if s.guests[g.ID] != g {
			return missing(g.Node, "qemu", g.ID)
		}
		if err := check(); err != nil {
			return err
		}
		if err := g.locked(); err != nil && g.Config["lock"] != "suspended" {
			return err
		}
		own := g.ownVolumes()
		for _, d := range s.disks.sorted() {
			_, attached := own[d.Volume]
			unreferenced := c.flag("destroy-unreferenced-disks") && d.Owner == g.ID
			switch {
			case s.disks.get(g.Node, d.Volume) != d || !attached && !unreferenced:
			case d.Stuck:
				t.warn("Could not remove disk '%s', check manually: lvremove '%[1]s' error: "+
					"Logical volume in use.", d.Volume)
			default:
				s.disks.free(d.Node, d.Volume)
			}
		}
		if c.flag("purge") {
			s.unmanage(sidOf(g.ID), true)
		}
		t.tell(s.config.OnDestroy, g)
		s.access.remove(g)
		return nil
	}).upid, nil
}
