package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Task is a worker process of a node.
type Task struct {
	UPID string // its id
	// Undo runs instead of its work if it is stopped or a fault ends it; Then, when it has succeeded.
	Undo, Then func()

	workers              *Workers
	node, kind, id, user string
	pid                  int
	started, ended       time.Time
	exit                 string // empty while it runs
	log                  []string
	warnings             int
	ctx                  context.Context // ends with the server, or when the task is stopped
	stop                 context.CancelFunc
	duration             time.Duration
	before               func()   // if set, runs without the lock before its work
	hooks                []func() // run without the lock before the task has ended
}

// Launch starts a task for a call. When the task's duration is over, do runs under the lock.
func (c *Call) Launch(kind string, id any, do func(*Task) error) *Task {
	return c.begin(c.workers.duration(kind), nil, kind, id, do)
}

// LaunchAfter is Launch for a task whose work begins with before, without the lock.
func (c *Call) LaunchAfter(before func(), kind string, id any, do func(*Task) error) *Task {
	return c.begin(c.workers.duration(kind), before, kind, id, do)
}

// LaunchFor is Launch for a task that takes d.
func (c *Call) LaunchFor(d time.Duration, kind string, id any, do func(*Task) error) *Task {
	return c.begin(d, nil, kind, id, do)
}

func (c *Call) begin(d time.Duration, before func(), kind string, id any, do func(*Task) error) *Task {
	w, now := c.workers, time.Now()
	t := &Task{
		workers: w, duration: d, before: before, node: c.Get("node"), kind: kind, id: fmt.Sprint(id),
		user: c.Caller.ID,
		pid:  0x1001 + len(w.tasks), started: now,
	}
	t.UPID = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:",
		t.node, t.pid, t.pid*97, now.Unix(), t.kind, t.id, t.user)
	t.ctx, t.stop = context.WithCancel(w.ctx)
	w.tasks = append(w.tasks, t)
	go t.work(c.Fault, do)
	return t
}

func (t *Task) work(fault Fault, do func(*Task) error) {
	err := t.wait(fault)
	if err == nil && t.before != nil {
		t.before()
	}
	t.workers.mu.Lock()
	if err == nil {
		err = do(t)
	} else if t.Undo != nil {
		t.Undo()
	}
	t.workers.mu.Unlock()
	for _, hook := range t.hooks {
		hook()
	}
	t.workers.mu.Lock()
	defer t.workers.mu.Unlock()
	t.finish(err)
}

// wait returns after the task's duration, or with the error that ends the task without effect.
func (t *Task) wait(fault Fault) error {
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
	case fault.Exit != "":
		return errors.New(fault.Exit)
	}
	return nil
}

// Tell has a hook run before the task is reported as finished, without the lock.
func (t *Task) Tell(hook func()) { t.hooks = append(t.hooks, hook) }

// Print adds a line to the log.
func (t *Task) Print(format string, args ...any) { t.log = append(t.log, fmt.Sprintf(format, args...)) }

// Warn logs an error that does not fail the task.
func (t *Task) Warn(format string, args ...any) {
	t.warnings++
	t.Print("WARN: "+format, args...)
}

func (t *Task) finish(err error) {
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
	if err == nil && t.Then != nil {
		t.Then()
	}
	t.workers.idle.Broadcast()
}

func (t *Task) running() bool { return t.exit == "" }

// cancel stops a task that runs; on one that has ended it has no effect.
func (t *Task) cancel() any {
	t.stop()
	return nil
}

func (t *Task) row() map[string]any {
	return map[string]any{
		"upid": t.UPID, "node": t.node, "pid": t.pid, "pstart": t.pid * 97, "starttime": t.started.Unix(),
		"type": t.kind, "id": t.id, "user": t.user,
	}
}

func (t *Task) status() any {
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

func (t *Task) lines() any {
	lines := []any{}
	for i, line := range t.log {
		lines = append(lines, map[string]any{"n": i + 1, "t": line})
	}
	return lines
}
