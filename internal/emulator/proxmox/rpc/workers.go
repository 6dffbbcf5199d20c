package rpc

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
)

// Workers are the worker processes of the nodes, which carry out what takes time. They share the mutex of the
// datacenter.
type Workers struct {
	mu       *sync.Mutex
	duration func(kind string) time.Duration // of the tasks of a type
	ctx      context.Context                 // ends all tasks
	cancel   context.CancelFunc
	tasks    []*Task
	idle     *sync.Cond // a task has ended
}

// NewWorkers returns nodes without tasks; duration is that of the tasks of a type.
func NewWorkers(mu *sync.Mutex, duration func(kind string) time.Duration) *Workers {
	w := &Workers{mu: mu, duration: duration, idle: sync.NewCond(mu)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Close stops the running tasks without effect and waits for them.
func (w *Workers) Close() {
	w.cancel()
	w.Idle()
}

// Idle waits until no task is running.
func (w *Workers) Idle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for slices.ContainsFunc(w.tasks, (*Task).running) {
		w.idle.Wait()
	}
}

// Routes has the calls about tasks.
func (w *Workers) Routes() map[string]Handler {
	return map[string]Handler{
		"GET nodes/{node}/tasks":               w.list,
		"DELETE nodes/{node}/tasks/{upid}":     w.onTask("Sys.Modify", (*Task).cancel),
		"GET nodes/{node}/tasks/{upid}/status": w.onTask("Sys.Audit", (*Task).status),
		"GET nodes/{node}/tasks/{upid}/log":    w.onTask("Sys.Audit", (*Task).lines),
	}
}

// mayWith reports whether the caller started the task, or has a privilege on its node.
func (c *Call) mayWith(t *Task, privilege string) bool {
	user, _, _ := strings.Cut(t.user, "!")
	return t.user == c.Caller.ID || user == c.Caller.ID || c.Caller.May("/nodes/"+t.node, privilege)
}

// onTask is a handler for a call about one task, which needs a privilege if it is somebody else's.
func (w *Workers) onTask(privilege string, handle func(*Task) any) Handler {
	return func(c *Call) (any, error) {
		upid := c.Get("upid")
		if parts := strings.Split(upid, ":"); len(parts) != 9 || parts[0] != "UPID" {
			return nil, failure.BadParameter("upid", "unable to parse worker upid")
		}
		for _, t := range w.tasks {
			if t.UPID == upid && t.node == c.Get("node") {
				if !c.mayWith(t, privilege) {
					return nil, c.Caller.Check("/nodes/"+t.node, privilege)
				}
				return handle(t), nil
			}
		}
		return nil, failure.BadParameter("upid", "no such task")
	}
}

// list shows a node's tasks that the caller may see, newest first; source=active leaves out those that
// have ended.
func (w *Workers) list(c *Call) (any, error) {
	rows, vmid := []any{}, c.Get("vmid")
	for _, t := range slices.Backward(w.tasks) {
		if t.node != c.Get("node") || vmid != "" && vmid != t.id ||
			c.Get("source") == "active" && !t.running() || !c.mayWith(t, "Sys.Audit") {
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
