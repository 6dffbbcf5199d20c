package proxmox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// task is a worker process of a node. An empty exit status means that it runs.
type task struct {
	upid, node, kind, id, user string
	pid                        int64
	started, ended             time.Time
	exit                       string
	log                        []string
	ctx                        context.Context // ends with the server, or when the task is stopped
	stop                       context.CancelFunc
}

// job is what a task does when its time has come, all under the server's lock
// but after, which is called without it.
type job struct {
	node, kind, id string
	do             func(*task) error
	undo           func() // instead of do, when the task is stopped or a fault ends it
	after          func()
}

// launch starts a task for a call and returns its UPID.
func (s *Server) launch(c *call, j job) string {
	s.serial++
	now := time.Now()
	t := &task{node: j.node, kind: j.kind, id: j.id, user: c.user, pid: s.serial, started: now}
	t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", t.node, t.pid, t.pid*97, now.Unix(), t.kind, t.id, t.user)
	t.ctx, t.stop = context.WithCancel(s.ctx)
	s.tasks = append(s.tasks, t)
	s.active++
	go s.work(t, j, c.fault)
	return t.upid
}

func (s *Server) work(t *task, j job, fault *Fault) {
	err := s.wait(t, j, fault)
	s.mu.Lock()
	if err == nil && fault != nil && fault.Task != "" {
		err = errors.New(fault.Task)
	}
	switch {
	case err == nil:
		err = j.do(t)
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
		s.settled.Broadcast()
	}
}

// wait lets the task's time pass, and fails when it is stopped meanwhile.
func (s *Server) wait(t *task, j job, fault *Fault) error {
	duration, ok := s.config.Durations[j.kind]
	if !ok {
		duration = s.config.Duration
	}
	timer := time.NewTimer(duration)
	defer timer.Stop()
	interrupted := errors.New("received interrupt")
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		return interrupted
	}
	if fault != nil && fault.Hold != nil {
		select {
		case <-fault.Hold:
		case <-t.ctx.Done():
			return interrupted
		}
	}
	return nil
}

// warn notes something that went wrong without failing the task.
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

func (s *Server) findTask(c *call) (*task, error) {
	upid := c.vars["upid"]
	if parts := strings.Split(upid, ":"); len(parts) != 9 || parts[0] != "UPID" {
		return nil, badParameter("upid", "unable to parse worker upid")
	}
	for _, t := range s.tasks {
		if t.upid == upid && t.node == c.vars["node"] {
			return t, nil
		}
	}
	return nil, badParameter("upid", "no such task")
}

// stopTask is DELETE …/tasks/{upid}: it ends a task that runs and does nothing
// to one that has ended.
func (s *Server) stopTask(c *call) (any, error) {
	t, err := s.findTask(c)
	if err == nil {
		t.stop()
	}
	return nil, err
}

func (s *Server) taskStatus(c *call) (any, error) {
	t, err := s.findTask(c)
	if err != nil {
		return nil, err
	}
	user, token, _ := strings.Cut(t.user, "!")
	out := map[string]any{
		"upid": t.upid, "node": t.node, "pid": t.pid, "pstart": t.pid * 97, "starttime": t.started.Unix(),
		"type": t.kind, "id": t.id, "user": user, "status": "running",
	}
	if token != "" {
		out["tokenid"] = token
	}
	if t.exit != "" {
		out["status"], out["exitstatus"] = "stopped", t.exit
	}
	return out, nil
}

func (s *Server) taskLog(c *call) (any, error) {
	t, err := s.findTask(c)
	if err != nil {
		return nil, err
	}
	lines := []any{}
	for i, line := range t.log {
		lines = append(lines, map[string]any{"n": i + 1, "t": line})
	}
	return lines, nil
}

// listTasks shows a node's tasks, newest first; source=active leaves out the
// finished ones.
func (s *Server) listTasks(c *call) (any, error) {
	rows := []any{}
	for i := len(s.tasks) - 1; i >= 0; i-- {
		t := s.tasks[i]
		if t.node != c.vars["node"] || (c.get("vmid") != "" && c.get("vmid") != t.id) || (c.get("source") == "active" && t.exit != "") {
			continue
		}
		row := map[string]any{
			"upid": t.upid, "node": t.node, "pid": t.pid, "pstart": t.pid * 97, "starttime": t.started.Unix(), "type": t.kind, "id": t.id, "user": t.user,
		}
		if t.exit != "" {
			row["endtime"], row["status"] = t.ended.Unix(), t.exit
		}
		rows = append(rows, row)
	}
	return rows, nil
}
