package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// task is a worker process of a node. It runs while its exit status is empty.
type task struct {
	upid, node, kind, id, user string
	pid                        int64
	started, ended             time.Time
	exit                       string
	log                        []string
	ctx                        context.Context // ends with the server, or when the task is stopped
	stop                       context.CancelFunc
}

// job is the work of a task when its duration is over. do and undo run under the
// lock, after runs without it.
type job struct {
	node, kind, id string
	do             func(*task) error
	undo           func() // replaces do if the task is stopped or a fault ends it
	after          func()
}

// tasks runs the tasks of all nodes and answers the calls about them.
type tasks struct {
	config *Config
	mu     *sync.Mutex
	ctx    context.Context // ends all tasks
	cancel context.CancelFunc
	all    []*task
	active int        // tasks that run
	idle   *sync.Cond // on mu: active has fallen to 0
	serial int64
}

func (s *tasks) routes() []route {
	return []route{
		{"GET", "nodes/{node}/tasks", s.list},
		{"DELETE", taskPath, s.about((*task).cancel)},
		{"GET", taskPath + "/status", s.about((*task).status)},
		{"GET", taskPath + "/log", s.about((*task).lines)},
	}
}

const taskPath = "nodes/{node}/tasks/{upid}"

// launch starts a task for a call and returns its UPID.
func (s *tasks) launch(c *call, j job) string {
	s.serial++
	now := time.Now()
	t := &task{node: j.node, kind: j.kind, id: j.id, user: c.user, pid: s.serial, started: now}
	t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:",
		t.node, t.pid, t.pid*97, now.Unix(), t.kind, t.id, t.user)
	t.ctx, t.stop = context.WithCancel(s.ctx)
	s.all = append(s.all, t)
	s.active++
	go s.work(t, j, c.fault)
	return t.upid
}

func (s *tasks) work(t *task, j job, fault *Fault) {
	err := s.wait(t, j, fault)
	s.mu.Lock()
	if err == nil && fault != nil && fault.Task != "" {
		err = errors.New(fault.Task)
	}
	switch {
	case err == nil && j.do != nil:
		err = j.do(t)
	case err == nil:
	case j.undo != nil:
		j.undo()
	}
	s.mu.Unlock()
	if err == nil && j.after != nil {
		j.after()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.finish(err)
	if s.active--; s.active == 0 {
		s.idle.Broadcast()
	}
}

// wait returns after the task's duration, or with an error when it is stopped.
func (s *tasks) wait(t *task, j job, fault *Fault) error {
	duration, ok := s.config.Durations[j.kind]
	if !ok {
		duration = s.config.Duration
	}
	over := make(chan struct{})
	defer time.AfterFunc(duration, func() { close(over) }).Stop()
	waits := []<-chan struct{}{over}
	if fault != nil && fault.Hold != nil {
		waits = append(waits, fault.Hold)
	}
	for _, done := range waits {
		select {
		case <-done:
		case <-t.ctx.Done():
			return errors.New("received interrupt")
		}
	}
	return nil
}

// warn logs an error that does not fail the task.
func (t *task) warn(format string, args ...any) {
	t.log = append(t.log, "WARN: "+fmt.Sprintf(format, args...))
}

func (t *task) finish(err error) {
	warnings := 0
	for _, line := range t.log {
		if strings.HasPrefix(line, "WARN: ") {
			warnings++
		}
	}
	t.ended = time.Now()
	t.stop()
	switch {
	case err != nil:
		t.exit = err.Error()
		t.log = append(t.log, "TASK ERROR: "+t.exit)
	case warnings > 0:
		t.exit = fmt.Sprintf("WARNINGS: %d", warnings)
		t.log = append(t.log, "TASK WARNINGS: "+strconv.Itoa(warnings))
	default:
		t.exit = "OK"
		t.log = append(t.log, "TASK OK")
	}
}

// about is a handler for a call about one task.
func (s *tasks) about(handle func(*task) any) handler {
	return func(c *call) (any, error) {
		upid := c.vars["upid"]
		if parts := strings.Split(upid, ":"); len(parts) != 9 || parts[0] != "UPID" {
			return nil, badParameter("upid", "unable to parse worker upid")
		}
		for _, t := range s.all {
			if t.upid == upid && t.node == c.vars["node"] {
				return handle(t), nil
			}
		}
		return nil, badParameter("upid", "no such task")
	}
}

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
	if t.exit != "" {
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

// list shows a node's tasks, newest first; source=active leaves out those that
// have ended.
func (s *tasks) list(c *call) (any, error) {
	rows := []any{}
	for _, t := range slices.Backward(s.all) {
		ended := t.exit != ""
		if t.node != c.vars["node"] || (c.get("vmid") != "" && c.get("vmid") != t.id) ||
			(c.get("source") == "active" && ended) {
			continue
		}
		row := t.row()
		if ended {
			row["endtime"], row["status"] = t.ended.Unix(), t.exit
		}
		rows = append(rows, row)
	}
	return rows, nil
}
