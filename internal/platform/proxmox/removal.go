package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// Removal deletes virtual machines that an Ownership does not refuse, one after the other. It stops at the
// first surprise and repeats nothing: the next Survey shows the effect of a request without an answer.
type Removal struct {
	Client    *Client
	Ownership Ownership
	// Interval lies between two requests about a task, Timeout bounds one; 1 s and 10 min if zero.
	Interval, Timeout time.Duration
	// Note gets every step before its request is sent. If it fails, nothing more is done.
	Note func(Step) error
}

// Step is one line of a removal's journal.
type Step struct {
	Time    time.Time `json:"time"`
	Kind    StepKind  `json:"kind"`
	ID      int       `json:"vmid,omitempty"`
	Name    string    `json:"name,omitempty"`
	Node    string    `json:"node,omitempty"`
	SMBIOS  string    `json:"smbios1,omitempty"` // the machine's identity
	Meta    string    `json:"meta,omitempty"`    // when it was created
	Volumes []string  `json:"volumes,omitempty"`
	Task    string    `json:"task,omitempty"`
}

// StepKind is the type of a Step.
type StepKind string

// The kinds of steps, in the order in which they come for a machine.
const (
	StepStop    StepKind = "stop"    // the stop follows
	StepStopped StepKind = "stopped" // is off
	StepDelete  StepKind = "delete"  // the deletion follows
	StepTask    StepKind = "task"    // the node has begun to delete it
	StepGone    StepKind = "gone"    // is proved gone
	StepLeft    StepKind = "left"    // volumes with its id that are still there
	StepFree    StepKind = "free"    // the deletion of an unused disk follows
	StepFreed   StepKind = "freed"   // it is proved gone
)

// String is a step for a user's terminal; empty for a step that only the journal needs.
func (s Step) String() string {
	machine, disk := fmt.Sprintf("VM %d %q: ", s.ID, s.Name), "disk "+strings.Join(s.Volumes, ", ")+": "
	switch s.Kind {
	case StepStop:
		return machine + "stopping"
	case StepDelete:
		return machine + "deleting"
	case StepGone:
		return machine + "gone"
	case StepFree:
		return disk + "deleting"
	case StepFreed:
		return disk + "gone"
	}
	return ""
}

// Remove stops and deletes one surveyed machine, and proves that it is gone. It checks before each of the
// two that the machine is still the same.
func (r *Removal) Remove(ctx context.Context, was Guest) (remains platform.Remains, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("VM %d: %w", was.ID, err)
		}
	}()
	now, err := r.same(ctx, was)
	if err != nil {
		return platform.Remains{}, err
	}
	if now.Status != "stopped" {
		if err := r.stop(ctx, was); err != nil {
			return platform.Remains{}, fmt.Errorf("stop: %w", err)
		}
		if now, err = r.same(ctx, was); err != nil {
			return platform.Remains{}, err
		}
		if now.Status != "stopped" {
			return platform.Remains{}, fmt.Errorf("was stopped and is %s again; somebody wants it to run",
				now.Status)
		}
	}
	return r.delete(ctx, was)
}

// same reads the machine again and refuses to go on if anything but its status has changed. Nothing closes
// the instant between this and the next request: Proxmox deletes by id alone.
func (r *Removal) same(ctx context.Context, was Guest) (Guest, error) {
	all, err := r.Client.Survey(ctx, platform.Range{From: was.ID, To: was.ID}, nil)
	switch {
	case err != nil:
		return Guest{}, err
	case len(all) == 0:
		return Guest{}, errors.New("has disappeared since castle listed it; another client changes it")
	}
	now := all[0]
	if changed := differences(was, now); len(changed) > 0 {
		return Guest{}, fmt.Errorf("has changed since the table was made (%s); nothing was deleted here",
			strings.Join(changed, ", "))
	}
	if why := r.Ownership.Refusals(now); len(why) > 0 {
		return Guest{}, fmt.Errorf("must not be deleted any more: %s", strings.Join(why, ", "))
	}
	return now, nil
}

// differences compares two reads of a guest. Only its status may differ, and the digest of the node.
func differences(was, now Guest) []string {
	if now.Hidden || now.Unreadable != "" {
		return []string{"it cannot be read any more"}
	}
	var changed []string
	for _, f := range []struct{ what, was, now string }{
		{"name", was.Name, now.Name}, {"node", was.Node, now.Node}, {"kind", was.Kind, now.Kind},
		{"pool", was.Pool, now.Pool},
	} {
		if f.was != f.now {
			changed = append(changed, fmt.Sprintf("%s: %q, was %q", f.what, f.now, f.was))
		}
	}
	keys := maps.Clone(was.Config)
	maps.Copy(keys, now.Config)
	delete(keys, "digest")
	delete(keys, "name")
	for _, key := range sortedKeys(keys) {
		before, had := was.Config[key]
		if after, has := now.Config[key]; had != has || before != after {
			changed = append(changed, "another "+key)
		}
	}
	return changed
}

func (r *Removal) stop(ctx context.Context, g Guest) error {
	err := r.send(ctx, g, Step{Kind: StepStop}, http.MethodPost, g.path()+"/status/stop")
	if err == nil {
		err = r.until(ctx, "still running", func() (bool, error) {
			err := r.Client.refresh(ctx, &g)
			return g.Status == "stopped", err
		})
	}
	if err != nil {
		return err
	}
	return r.note(Step{Kind: StepStopped}, g)
}

// delete also takes the machine out of backup jobs. Disks that only carry its id stay: on a storage that
// two datacenters share, they may be another machine's. It proves that the id is free, for every token and
// on every node, and looks for volumes on the storages of the machine's drives.
func (r *Removal) delete(ctx context.Context, g Guest) (remains platform.Remains, err error) {
	step := Step{Kind: StepDelete, Volumes: g.Config.Volumes()}
	err = r.send(ctx, g, step, http.MethodDelete, g.path()+"?purge=1&destroy-unreferenced-disks=0")
	if err != nil {
		return remains, fmt.Errorf("delete: %w", err)
	}
	err = r.until(ctx, "its task has ended, but the id is still taken", func() (bool, error) {
		guests, err := r.Client.GuestsOn(ctx, []int{g.ID}, map[int]string{g.ID: g.Node})
		return len(guests) == 0, err
	})
	if err != nil {
		return remains, err
	}
	remains.Gone = true
	if err := r.note(Step{Kind: StepGone}, g); err != nil {
		return remains, err
	}
	if err := r.readRemains(ctx, g, &remains); err != nil {
		return remains, fmt.Errorf("is gone, but its storages cannot be read: %w", err)
	}
	if left := slices.Concat(remains.Own, remains.Unreferenced); len(left) > 0 {
		return remains, r.note(Step{Kind: StepLeft, Volumes: left}, g)
	}
	return remains, nil
}

// readRemains looks for volumes that carry the machine's id. Backups are no remains.
func (r *Removal) readRemains(ctx context.Context, g Guest, remains *platform.Remains) error {
	own := g.Config.Volumes()
	read := map[string]bool{}
	for _, drive := range own {
		storage := values.StorageOf(drive)
		if read[storage] {
			continue
		}
		read[storage] = true
		volumes, err := r.Client.Volumes(ctx, g.Node, storage, "images", g.ID)
		if err != nil {
			return err
		}
		for _, volume := range sortedKeys(volumes) {
			if slices.Contains(own, volume) {
				remains.Own = append(remains.Own, volume)
			} else {
				remains.Unreferenced = append(remains.Unreferenced, volume)
			}
		}
	}
	return nil
}

// Free deletes a disk that nothing uses and whose id is free, which it checks, and proves that it is gone.
func (r *Removal) Free(ctx context.Context, o platform.Orphan) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("disk %s: %w", o.Volume, err)
		}
	}()
	if taken, err := r.Client.Taken(ctx, o.ID); err != nil {
		return err
	} else if taken {
		return fmt.Errorf("VM %d is there; nothing was deleted here", o.ID)
	}
	now, _, err := r.Client.Orphans(ctx, platform.Range{From: o.ID, To: o.ID}, func(int) string { return "" })
	if err != nil {
		return err
	}
	listed := o
	listed.Chosen = false
	if !slices.Contains(now, listed) {
		return errors.New("has changed since the table was made; nothing was deleted here")
	}
	of := Guest{ID: o.ID, Node: o.Node}
	path := storagePath(o.Node, o.Storage) + session.Path("/%s", o.Volume)
	err = r.send(ctx, of, Step{Kind: StepFree, Volumes: []string{o.Volume}}, http.MethodDelete, path)
	if err == nil {
		err = r.until(ctx, "its task has ended, but it is still there", func() (bool, error) {
			volumes, err := r.Client.Volumes(ctx, o.Node, o.Storage, "images", o.ID)
			_, exists := volumes[o.Volume]
			return !exists, err
		})
	}
	if err != nil {
		return err
	}
	return r.note(Step{Kind: StepFreed, Volumes: []string{o.Volume}}, of)
}

// send notes a step, sends its request once, and waits for its task.
func (r *Removal) send(ctx context.Context, g Guest, step Step, method, path string) error {
	if err := r.note(step, g); err != nil {
		return err
	}
	var task string
	if _, err := r.Client.session.Call(ctx, method, path, &task); err != nil {
		return err
	}
	switch step.Kind {
	case StepDelete:
		if err := r.note(Step{Kind: StepTask, Task: task}, g); err != nil {
			return err
		}
	case StepFree:
		if task == "" { // some storages free a disk at once
			return nil
		}
	}
	return r.finish(ctx, task)
}

func (r *Removal) note(step Step, g Guest) error {
	step.Time, step.ID, step.Name, step.Node = time.Now().UTC(), g.ID, g.Name, g.Node
	step.SMBIOS, step.Meta = g.Config["smbios1"], g.Config["meta"]
	if r.Note == nil {
		return nil
	}
	return r.Note(step)
}

// finish waits until a task has ended; anything but success is an error. The task goes on without castle.
func (r *Removal) finish(ctx context.Context, upid string) error {
	parts := strings.Split(upid, ":")
	if len(parts) != 9 || parts[0] != "UPID" {
		return fmt.Errorf("unexpected answer: %q is not a task", upid)
	}
	type status struct {
		Status string `json:"status"`
		Exit   string `json:"exitstatus"`
	}
	var task status
	path := session.Path("nodes/%s/tasks/%s/status", parts[1], upid)
	err := r.until(ctx, "task "+upid+" still runs", func() (_ bool, err error) {
		task, err = get(ctx, r.Client, path, func(now status) string {
			return textIf(now.Status == "", "no status")
		})
		return task.Status == "stopped", err
	})
	// With warnings the task has succeeded as well; readRemains finds the leftovers.
	if err == nil && task.Exit != "OK" && !strings.HasPrefix(task.Exit, "WARNINGS") {
		err = &values.TaskError{UPID: upid, Exit: cmp.Or(task.Exit, "ended without a status")}
	}
	return err
}

// until repeats a check that changes nothing until it succeeds. It repeats failed requests, not refused ones.
func (r *Removal) until(ctx context.Context, what string, done func() (bool, error)) error {
	interval, timeout := cmp.Or(r.Interval, time.Second), cmp.Or(r.Timeout, 10*time.Minute)
	var last error
	check := func(context.Context) (yes bool, err error) {
		yes, last = done()
		if kind := KindOf(last); kind == Unauthorized || kind == Forbidden {
			return false, last
		}
		return yes && last == nil, nil
	}
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, check)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case wait.Interrupted(err) && last != nil:
		return fmt.Errorf("%s after %s; last answer: %w", what, timeout, last)
	case wait.Interrupted(err):
		return fmt.Errorf("%s after %s", what, timeout)
	}
	return err
}
