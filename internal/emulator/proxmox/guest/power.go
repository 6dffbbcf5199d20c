package guest

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// power is the handler of a status verb: it starts the verb's task. Under high availability the call only
// leaves a request, whose task ends at once; a reboot passes it by.
func (s *Guests) power(verb string, do func(*rpc.Task, *Guest) error) rpc.Handler {
	return s.onGuest("qemu", "VM.PowerMgmt", func(c *rpc.Call, g *Guest) (any, error) {
		work := func(t *rpc.Task) error {
			if s.all[g.ID] != g {
				return missing(g.Node, "qemu", g.ID)
			}
			if err := g.locked(); err != nil {
				return err
			}
			return do(t, g)
		}
		if verb == "reboot" && !g.Running {
			return nil, failure.Internal("VM %d not running", g.ID)
		}
		shuts := verb == "reboot" || verb == "shutdown"
		if !g.HA || verb == "reboot" {
			return s.powered(c, "qm"+verb, g, shuts, work).UPID, nil
		}
		states := map[bool]string{true: "started", false: "stopped"}
		s.stack.Want(g, states[verb == "start"])
		worker := c.As(s.access.As(access.Root))
		s.powered(worker, "qm"+verb, g, shuts, work)
		kind := "ha" + strings.Replace(verb, "shutdown", "stop", 1)
		return c.Launch(kind, g.ID, func(*rpc.Task) error { return nil }).UPID, nil
	})
}

// Power launches the task with which the HA stack starts a guest on its node, or shuts it down.
func (s *Guests) Power(g *Guest, on bool) {
	kind, do := "qmshutdown", s.stop
	if on {
		kind, do = "qmstart", s.start
	}
	c := s.workers.Call(s.access.As(access.Root), rpc.Request{Params: url.Values{
		"node": {g.Node}, "forceStop": {"1"}, "timeout": {"60"}}})
	s.powered(c, kind, g, !on, func(t *rpc.Task) error {
		if s.all[g.ID] != g {
			return missing(g.Node, "qemu", g.ID)
		}
		return do(t, g)
	})
}

// powered launches a task that presses the guest's power button first, if it shuts the guest down. The task
// waits for a guest that ignores the button, and fails unless the call forces a stop.
func (s *Guests) powered(c *rpc.Call, kind string, g *Guest, shuts bool,
	work func(*rpc.Task) error) *rpc.Task {
	if !shuts || !g.Running || g.Config["lock"] != "" {
		return c.Launch(kind, g.ID, work)
	}
	if g.Deaf {
		seconds, err := strconv.Atoi(c.Get("timeout"))
		if err != nil {
			seconds = 60
		}
		patience := cmp.Or(s.config.Patience, time.Duration(seconds)*time.Second)
		return c.LaunchFor(patience, kind, g.ID, func(t *rpc.Task) error {
			if g.Running && !c.Flag("forceStop") {
				return errors.New("VM quit/powerdown failed - got timeout")
			}
			return work(t)
		})
	}
	var press func()
	if hook := s.config.OnShutdown; hook != nil {
		v := g.View()
		press = func() { hook(v) }
	}
	return c.LaunchAfter(press, kind, g.ID, work)
}

func (s *Guests) start(t *rpc.Task, g *Guest) error {
	switch {
	case g.Config["template"] == "1":
		return errors.New("you can't start a vm if it's a template")
	case g.Running:
		return fmt.Errorf("VM %d already running", g.ID)
	}
	g.settle(s)
	if err := g.startable(s, t); err != nil {
		return err
	}
	g.Running, g.Started = true, time.Now()
	g.tell(t, s.config.OnStart)
	return nil
}

// stop has no effect on a guest that is off. What waits for the guest's start is applied when its old process
// has ended.
func (s *Guests) stop(t *rpc.Task, g *Guest) error {
	if g.Running {
		g.Running = false
		g.tell(t, s.config.OnStop)
	}
	g.settle(s)
	return nil
}

// reboot ends when the guest is off. The node itself starts it then, with a task of its own.
func (s *Guests) reboot(t *rpc.Task, g *Guest) error {
	t.Then = func() {
		node := s.workers.Call(s.access.As(access.Root), rpc.Request{Params: url.Values{"node": {g.Node}}})
		node.Launch("qmstart", g.ID, func(t *rpc.Task) error {
			if s.all[g.ID] != g {
				return missing(g.Node, "qemu", g.ID)
			}
			return s.start(t, g)
		})
	}
	return s.stop(t, g)
}
