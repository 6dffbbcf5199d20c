package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

const (
	// shutdownTime bounds a guest's own shutdown. Talos first ends the pods that a drain leaves.
	shutdownTime = 5 * time.Minute
	// revivalTime bounds how long Proxmox takes to start a guest by itself after its reboot: it waits up to a
	// minute for the end of the old process.
	revivalTime = 2 * time.Minute
)

// Restart has Proxmox shut a machine down and start it, so that a killed castle leaves none off: the node
// itself starts it when the old process has ended. A guest that does not shut down within shutdownTime is
// stopped and started by castle. A reboot that an earlier call has begun is completed. Nothing is asked of a
// machine with a lock: a backup reads its disks, or a migration moves it. Protection is against deletion
// alone. High availability starts what it finds stopped; it leaves a machine off that it was asked to stop,
// until it is asked to start it.
func (s Search) Restart(ctx context.Context, m platform.Object, say func(string)) error {
	p := power{&Removal{Client: s.Client, Interval: s.Interval, Timeout: s.Timeout}, m,
		func(text string) { say(fmt.Sprintf("VM %d %s", m.VM, text)) }}
	err := p.restart(ctx)
	if err == nil {
		err = p.applied(ctx)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("VM %d: %w", m.VM, err)
	}
	return err
}

// power restarts one machine.
type power struct {
	tasks   *Removal // sends requests and waits for their tasks
	machine platform.Object
	say     func(string)
}

// find reads the machine where it is now. Another machine with its id is an error.
func (p power) find(ctx context.Context) (Guest, error) {
	c := p.tasks.Client
	found, err := c.GuestsOn(ctx, []int{p.machine.VM}, nil)
	if err != nil {
		return Guest{}, err
	}
	g, exists := found[p.machine.VM]
	switch {
	case !exists:
		return g, errors.New("does not exist any more")
	case g.Hidden:
		return g, errors.New("is invisible to this API token; " + auditFix(g.ID))
	case !g.isVM():
		return g, fmt.Errorf("is another guest: %s", g)
	}
	if g, err = c.configured(ctx, g); err != nil {
		return g, err
	}
	switch same, proved := g.matches(p.machine); {
	case !proved:
		return g, fmt.Errorf("the state has neither a uuid nor a hardware address to tell it from %s", g)
	case !same:
		return g, fmt.Errorf("is not castle's machine but %s: expected the %s", g, otherUUID(p.machine, g))
	}
	return g, c.refresh(ctx, &g)
}

func (p power) restart(ctx context.Context) error {
	g, err := p.find(ctx)
	if err != nil {
		return err
	}
	reboot, err := p.settle(ctx, g)
	if err == nil {
		g, err = p.find(ctx)
	}
	switch {
	case err != nil:
		return err
	case reboot != "":
	case g.Lock != "":
		_, fixes := g.blocked()
		return fmt.Errorf("is locked (%s), and castle does not restart it; %s", g.Lock,
			cmp.Or(strings.Join(fixes, "; "), "resume it first"))
	case g.Status == "running":
		p.say("shuts down")
		path := fmt.Sprintf("%s/status/reboot?timeout=%d", g.path(), int(shutdownTime.Seconds()))
		if _, err := p.tasks.Client.session.Call(ctx, http.MethodPost, path, &reboot); err != nil {
			return err
		}
	}
	if reboot != "" {
		err = p.tasks.finish(ctx, reboot)
	}
	if failed, is := errors.AsType[*values.TaskError](err); is && failed.Ignored() {
		return p.cycle(ctx)
	}
	if err != nil {
		return err
	}
	return p.start(ctx, reboot != "")
}

// settle waits for the tasks that work on the machine, and returns one that reboots it already.
func (p power) settle(ctx context.Context, g Guest) (reboot string, err error) {
	running, err := p.tasks.Client.running(ctx, g.Node, g.ID)
	for _, t := range running {
		if !t.concerns(p.machine, true) {
			continue
		}
		p.say("waits for Proxmox' task " + t.Kind)
		if t.Kind == "qmreboot" {
			reboot = t.UPID
		} else if err := p.tasks.finish(ctx, t.UPID); err != nil && !errors.As(err, new(*values.TaskError)) {
			return "", err
		}
	}
	return reboot, err
}

// cycle stops a guest that does not shut down, and starts it. No interrupt leaves it off.
func (p power) cycle(ctx context.Context) error {
	g, err := p.find(ctx)
	if err != nil {
		return err
	}
	whole := context.WithoutCancel(ctx)
	if g.Status == "running" {
		p.say(fmt.Sprintf("does not shut down within %s; castle stops it", shutdownTime))
		err = p.tasks.stop(whole, g)
	}
	if err == nil {
		err = p.start(whole, false)
	}
	return cmp.Or(context.Cause(ctx), err)
}

// start returns when the machine runs. revives: Proxmox starts it by itself.
func (p power) start(ctx context.Context, revives bool) error {
	p.say("starts")
	if revives && p.runs(ctx, revivalTime) == nil {
		return nil
	}
	g, err := p.find(ctx)
	if err != nil || g.Status == "running" {
		return err
	}
	patience := p.tasks.Timeout // high availability starts it later
	failed := p.tasks.send(ctx, g, Step{}, http.MethodPost, g.path()+"/status/start")
	if failed != nil { // unless Proxmox has started it meanwhile
		patience = cmp.Or(patience, revivalTime)
	}
	if err = p.runs(ctx, patience); err != nil && failed != nil {
		err = fmt.Errorf("start: %w", failed)
	}
	return err
}

// runs waits until the machine runs.
func (p power) runs(ctx context.Context, atMost time.Duration) error {
	tasks := *p.tasks
	tasks.Timeout = atMost
	return tasks.until(ctx, "does not run", func() (bool, error) {
		g, err := p.find(ctx)
		return g.Status == "running", err
	})
}

// applied returns an error if a change waits for a restart: Proxmox only warns of one that it cannot apply.
func (p power) applied(ctx context.Context) error {
	g, err := p.find(ctx)
	if err != nil {
		return err
	}
	pending, err := p.tasks.Client.pending(ctx, g)
	if len(pending) > 0 {
		err = fmt.Errorf("has restarted, and Proxmox has not applied %s; the log of its last start on node "+
			"%s says why", strings.Join(pending, ", "), g.Node)
	}
	return err
}
