package hcloud

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// action is an operation that takes time. It locks its first resource until it has ended.
type action struct {
	view     schema.Action
	target   reference
	duration time.Duration
	after    *action       // it starts when this one has ended
	needs    bool          // and fails if that one fails
	before   func()        // runs without the lock before its effect
	hooks    []func()      // run without the lock before it has ended
	done     chan struct{} // closed when it has ended
}

func (a *action) running() bool { return a.view.Finished == nil }

// act starts an action on a resource, and returns it as an answer. effect runs under the lock when its
// duration is over.
func (c *call) act(command string, target reference, effect func()) any {
	return map[string]any{"action": &c.begin(command, target, nil, effect).view}
}

// begin starts an action when another one has succeeded, if there is one, or when the last one on the
// resource has ended.
func (c *call) begin(command string, target reference, after *action, effect func()) *action {
	s := c.s
	s.lastID++
	a := &action{target: target, after: after, needs: after != nil, done: make(chan struct{})}
	for _, other := range sorted(s.actions) {
		if after == nil && other.running() && other.target == target {
			a.after = other
		}
	}
	a.duration = s.config.Duration
	if d, is := s.config.Durations[command]; is {
		a.duration = d
	}
	a.view = schema.Action{ID: s.lastID, Command: command, Status: "running", Started: time.Now().UTC(),
		Resources: []schema.ActionResourceReference{{ID: target.id, Type: target.kind}}}
	s.actions[a.view.ID] = a
	s.locks[target] = true
	c.begun = append(c.begun, a)
	go a.work(s, c.fault, effect)
	return a
}

func (a *action) work(s *Server, fault Fault, effect func()) {
	err := a.wait(s.ctx, fault)
	if err == nil && a.before != nil {
		a.before()
	}
	s.mu.Lock()
	if err == nil {
		effect()
	}
	s.derive()
	s.mu.Unlock()
	for _, hook := range a.hooks {
		hook()
	}
	defer s.locked()()
	now := time.Now().UTC()
	a.view.Finished, a.view.Progress, a.view.Status, a.view.Error = &now, 100, "success", err
	if err != nil {
		a.view.Status = "error"
	}
	busy := func(b *action) bool { return b.running() && b.target == a.target }
	if !slices.ContainsFunc(sorted(s.actions), busy) {
		delete(s.locks, a.target)
	}
	close(a.done)
	s.idle.Broadcast()
}

// wait returns after the action's duration, or with the error that ends it without effect.
func (a *action) wait(ctx context.Context, fault Fault) *schema.ActionError {
	if a.after != nil {
		<-a.after.done
		if a.needs && a.after.view.Error != nil {
			return a.after.view.Error
		}
	}
	select {
	case <-time.After(a.duration):
	case <-ctx.Done():
	}
	if fault.Hold != nil {
		select {
		case <-fault.Hold:
		case <-ctx.Done():
		}
	}
	switch {
	case ctx.Err() != nil:
		return &schema.ActionError{Code: "server_error", Message: "the emulator ends"}
	case fault.Action != "":
		return &schema.ActionError{Code: fault.Action, Message: "action failed"}
	}
	return nil
}

// tell calls a hook, if it is set, with a server as it is when the action has had its effect.
func (a *action) tell(s *Server, hook func(Machine), server *schema.Server) {
	if hook == nil {
		return
	}
	a.hooks = append(a.hooks, func() {
		s.mu.Lock()
		m := Machine{*server, s.userData[server.ID]}
		s.mu.Unlock()
		hook(m)
	})
}

// listActions answers with actions by their ids, or with those of a resource. The API has no list of all.
func (s *Server) listActions(c *call, of reference) (any, error) {
	query := c.r.URL.Query()
	if of.kind == "" && !query.Has("id") {
		return nil, fail(http.StatusGone, "deprecated_api_endpoint", "listing all actions is not possible")
	}
	rows := []*schema.Action{}
	for _, a := range sorted(s.actions) {
		wanted := !query.Has("id") || slices.Contains(query["id"], strconv.FormatInt(a.view.ID, 10))
		status := !query.Has("status") || slices.Contains(query["status"], a.view.Status)
		if wanted && status && (of.kind == "" || a.target == of) {
			rows = append(rows, &a.view)
		}
	}
	if slices.Contains(query["sort"], "status") {
		slices.SortStableFunc(rows, func(a, b *schema.Action) int { return cmp.Compare(a.Status, b.Status) })
	}
	return paged(c, "actions", rows)
}

func (s *Server) getAction(c *call) (any, error) {
	id, _ := strconv.ParseInt(c.r.PathValue("id"), 10, 64) //nolint:errcheck // 0 is no action's id
	if a := s.actions[id]; a != nil {
		return map[string]any{"action": &a.view}, nil
	}
	return nil, fail(http.StatusNotFound, "not_found", "action with ID '%d' not found", id)
}

// progress sets the progress of an action that runs: the part of its duration that is over.
func (a *action) progress(now time.Time) {
	if a.running() && a.duration > 0 {
		a.view.Progress = min(99, int(100*now.Sub(a.view.Started)/a.duration))
	}
}
