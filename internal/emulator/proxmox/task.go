package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// task is a worker process of a node.
type task struct {
	s                          *Server
	upid, node, kind, id, user string
	pid                        int
	started, ended             time.Time
	exit                       string // empty while it runs
	log                        []string
	warnings                   int
	ctx                        context.Context // ends with the server, or when the task is stopped
	stop                       context.CancelFunc
	duration                   time.Duration
	before                     func()   // if set, runs without the lock before its work
	undo                       func()   // runs instead of its work if it is stopped or a fault ends it
	hooks                      []func() // run without the lock before the task has ended
	then                       func()   // if set, runs when it has succeeded
}

// launch starts a task for a call. When the task's duration is over, do runs under the lock.
func (c *call) launch(kind string, id any, do func(*task) error) *task {
	return c.launchFor(c.s.config.duration(kind), kind, id, nil, do)
}

// duration is that of the tasks of a type.
func (c *Config) duration(kind string) time.Duration {
	if duration, ok := c.Durations[kind]; ok {
		return duration
	}
	return c.Duration
}

// launchFor starts a task that takes d; before, if it is not nil, runs without the lock before do.
func (c *call) launchFor(d time.Duration, kind string, id any, before func(),
	do func(*task) error) *task {
	s, now := c.s, time.Now()
	t := &task{
		s: s, duration: d, before: before, node: c.get("node"), kind: kind, id: fmt.Sprint(id),
		user: c.caller.id,
		pid:  0x1001 + len(s.tasks), started: now,
	}
	t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:",
		t.node, t.pid, t.pid*97, now.Unix(), t.kind, t.id, t.user)
	t.ctx, t.stop = context.WithCancel(s.ctx)
	s.tasks = append(s.tasks, t)
	go t.work(c.fault, do)
	return t
}

func (t *task) work(fault *Fault, do func(*task) error) {
	err := t.wait(fault)
	if err == nil && t.before != nil {
		t.before()
	}
	t.s.mu.Lock()
	if err == nil {
		err = do(t)
	} else if t.undo != nil {
		t.undo()
	}
	t.s.mu.Unlock()
	for _, hook := range t.hooks {
		hook()
	}
	defer t.s.locked()()
	t.finish(err)
}

// wait returns after the task's duration, or with the error that ends the task without effect.
func (t *task) wait(fault *Fault) error {
	select {
	case <-time.After(t.duration):
	case <-t.ctx.Done():
	}
	if fault.Hold != nil {
		select {
		case <-fault.Hold:
		case <-t.ctx.Done():
		}
	}
	switch {
	case t.ctx.Err() != nil:
		return errors.New("received interrupt")
	case fault.Task != "":
		return errors.New(fault.Task)
	}
	return nil
}

// tell calls a hook, if it is set, with a guest as it is now.
func (t *task) tell(hook func(VM), g *guest) {
	if v := g.view(); hook != nil {
		t.hooks = append(t.hooks, func() { hook(v) })
	}
}

// warn logs an error that does not fail the task.
func (t *task) warn(format string, args ...any) {
	t.warnings++
	t.log = append(t.log, "WARN: "+fmt.Sprintf(format, args...))
}

func (t *task) finish(err error) {
	t.ended, t.exit = time.Now(), "OK"
	t.stop()
	last := "TASK OK"
	switch {
	case err != nil:
		t.exit, last = err.Error(), "TASK ERROR: "+err.Error()
	case t.warnings > 0:
		t.exit = fmt.Sprintf("WARNINGS: %d", t.warnings)
		last = "TASK " + t.exit
	}
	t.log = append(t.log, last)
	if err == nil && t.then != nil {
		t.then()
	}
	t.s.idle.Broadcast()
}

// mayWith reports whether the caller started the task, or has a privilege on its node.
func (c *call) mayWith(t *task, privilege string) bool {
	user, _, _ := strings.Cut(t.user, "!")
	return t.user == c.caller.id || user == c.caller.id || c.caller.may("/nodes/"+t.node, privilege)
}

// onTask is a handler for a call about one task, which needs a privilege if it is somebody else's.
func onTask(privilege string, handle func(*task) any) handler {
	return func(c *call) (any, error) {
		upid := c.get("upid")
		if parts := strings.Split(upid, ":"); len(parts) != 9 || parts[0] != "UPID" {
			return nil, badParameter("upid", "unable to parse worker upid")
		}
		for _, t := range c.s.tasks {
			if t.upid == upid && t.node == c.get("node") {
				if !c.mayWith(t, privilege) {
					return nil, c.caller.check("/nodes/"+t.node, privilege)
				}
				return handle(t), nil
			}
		}
		return nil, badParameter("upid", "no such task")
	}
}

func (t *task) running() bool { return t.exit == "" }

// cancel stops a task that runs; on one that has ended it has no effect.
func (t *task) cancel() any {
	t.stop()
	return nil
}

func (t *task) row() map[string]any {
	return map[string]any{
		"upid": t.upid, "node": t.node, "pid": t.pid, "pstart": t.pid * 97, "starttime": t.started.Unix(),
		"type": t.kind, "id": t.id, "user": t.user,
	}
}

func (t *task) status() any {
	user, token, _ := strings.Cut(t.user, "!")
	out := t.row()
	out["user"], out["status"] = user, "running"
	if token != "" {
		out["tokenid"] = token
	}
	if !t.running() {
		out["status"], out["exitstatus"] = "stopped", t.exit
	}
	return out
}

func (t *task) lines() any {
	lines := []any{}
	for i, line := range t.log {
		lines = append(lines, map[string]any{"n": i + 1, "t": line})
	}
	return lines
}

// listTasks shows a node's tasks that the caller may see, newest first; source=active leaves out those that
// have ended.
func listTasks(c *call) (any, error) {
	rows, vmid := []any{}, c.get("vmid")
	for _, t := range slices.Backward(c.s.tasks) {
		if t.node != c.get("node") || vmid != "" && vmid != t.id ||
			c.get("source") == "active" && !t.running() || !c.mayWith(t, "Sys.Audit") {
			continue
		}
		row := t.row()
		if !t.running() {
			row["endtime"], row["status"] = t.ended.Unix(), t.exit
		}
		rows = append(rows, row)
	}
	return rows, nil
}
