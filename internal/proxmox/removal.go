package proxmox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Removal deletes virtual machines that a Claim lets go, one after the other. It
// stops at the first thing that is not as expected and repeats nothing: what a
// lost answer has done is for the next Survey to see.
type Removal struct {
	Client *Client
	Claim  Claim
	// Interval lies between two questions about a task, Patience is how long
	// one may take; 1 s and 10 min if zero.
	Interval, Patience time.Duration
	// Note is told of every step, before what it announces is asked for. If it
	// fails, nothing more is done.
	Note func(Step) error
}

// Step is one line of a removal's story.
type Step struct {
	Time    time.Time `json:"time"`
	Kind    StepKind  `json:"kind"`
	ID      int       `json:"vmid,omitempty"`
	Name    string    `json:"name,omitempty"`
	Node    string    `json:"node,omitempty"`
	SMBIOS  string    `json:"smbios1,omitempty"` // what tells the machine from any other
	Meta    string    `json:"meta,omitempty"`    // when it was created
	Volumes []string  `json:"volumes,omitempty"`
	Task    string    `json:"task,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// StepKind says what a Step is about.
type StepKind string

// The kinds of steps, in the order in which they come for a machine.
const (
	StepStop    StepKind = "stop"    // will be asked to stop
	StepStopped StepKind = "stopped" // is off
	StepDelete  StepKind = "delete"  // will be asked to be deleted
	StepTask    StepKind = "task"    // the node has begun to delete it
	StepGone    StepKind = "gone"    // is proved gone
	StepLeft    StepKind = "left"    // volumes with its id that are still there
	StepFree    StepKind = "free"    // a disk that nothing uses will be asked to be deleted
	StepFreed   StepKind = "freed"   // … and is proved gone
)

// String is a step in words for who watches; empty for what only the journal needs.
func (s Step) String() string {
	switch s.Kind {
	case StepStop:
		return fmt.Sprintf("VM %d %q: stopping", s.ID, s.Name)
	case StepDelete:
		return fmt.Sprintf("VM %d %q: deleting", s.ID, s.Name)
	case StepGone:
		return fmt.Sprintf("VM %d %q: gone", s.ID, s.Name)
	case StepFree:
		return fmt.Sprintf("disk %s: deleting", strings.Join(s.Volumes, ", "))
	case StepFreed:
		return fmt.Sprintf("disk %s: gone", strings.Join(s.Volumes, ", "))
	}
	return ""
}

// Remains says what is left of a machine that was to be deleted: whether it is
// proved gone, and the volumes that it has left on its storages.
type Remains struct {
	Gone         bool
	Own          []string // its configuration named them: they could not be freed
	Unreferenced []string // only their names carry its id
}

// Remove stops and deletes one machine that was judged before, and proves that
// it is gone. Whether it is still the same is asked before each of the two.
func (r *Removal) Remove(ctx context.Context, was Subject) (Remains, error) {
	remains, err := r.remove(ctx, was)
	if err != nil {
		err = fmt.Errorf("VM %d: %w", was.ID, err)
	}
	return remains, err
}

func (r *Removal) remove(ctx context.Context, was Subject) (Remains, error) {
	now, err := r.same(ctx, was)
	if err != nil {
		return Remains{}, err
	}
	if now.Status != "stopped" {
		if err := r.stop(ctx, was); err != nil {
			return Remains{}, err
		}
		if now, err = r.same(ctx, was); err != nil {
			return Remains{}, err
		}
		if now.Status != "stopped" {
			return Remains{}, fmt.Errorf("was stopped and is %s again; somebody wants it to run", now.Status)
		}
	}
	if err := r.delete(ctx, was); err != nil {
		return Remains{}, err
	}
	return r.gone(ctx, was)
}

// same looks at the machine anew and refuses to go on if anything but whether
// it runs has changed. Nothing closes the instant between this question and what
// follows it: Proxmox deletes by id alone.
func (r *Removal) same(ctx context.Context, was Subject) (Subject, error) {
	all, err := r.Client.Survey(ctx, Range{From: was.ID, To: was.ID})
	switch {
	case err != nil:
		return Subject{}, err
	case len(all) == 0:
		return Subject{}, errors.New("has disappeared since the table was made; somebody else is at work here")
	}
	now := all[0]
	if changed := differences(was, now); len(changed) > 0 {
		return Subject{}, fmt.Errorf("is not what it was when the table was made (%s); nothing was deleted here", strings.Join(changed, ", "))
	}
	if why := r.Claim.Judge(now); len(why) > 0 {
		return Subject{}, fmt.Errorf("must not be deleted any more: %s", strings.Join(why, ", "))
	}
	return now, nil
}

// differences names what tells two looks at a guest apart. Only whether it runs
// may differ, and the digest, which the node computes.
func differences(was, now Subject) []string {
	if now.Hidden || now.Unreadable != "" {
		return []string{"it cannot be read any more"}
	}
	var changed []string
	for _, f := range []struct{ what, was, now string }{
		{"name", was.Name, now.Name}, {"node", was.Node, now.Node}, {"kind", was.Kind, now.Kind}, {"pool", was.Pool, now.Pool},
	} {
		if f.was != f.now {
			changed = append(changed, fmt.Sprintf("%s: %q, was %q", f.what, f.now, f.was))
		}
	}
	keys := maps.Clone(was.Config)
	maps.Copy(keys, now.Config)
	delete(keys, "digest")
	delete(keys, "name")
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, had := was.Config[key]
		if after, has := now.Config[key]; had != has || before != after {
			changed = append(changed, "another "+key)
		}
	}
	return changed
}

func (r *Removal) stop(ctx context.Context, s Subject) error {
	if err := r.note(Step{Kind: StepStop}, s); err != nil {
		return err
	}
	var task string
	if err := r.Client.call(ctx, http.MethodPost, guestPath(s.Guest)+"/status/stop", &task); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := r.finish(ctx, task); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	err := r.until(ctx, "still running", func() (bool, error) {
		now := Subject{Guest: s.Guest}
		err := r.Client.presently(ctx, &now)
		return now.Status == "stopped", err
	})
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return r.note(Step{Kind: StepStopped}, s)
}

// delete asks for the deletion and waits for its task. purge takes the machine
// out of backup jobs as well. Disks that only carry its id stay: on a storage
// that two datacenters share, they may be another machine's.
func (r *Removal) delete(ctx context.Context, s Subject) error {
	if err := r.note(Step{Kind: StepDelete, Volumes: s.Config.Volumes()}, s); err != nil {
		return err
	}
	var task string
	path := guestPath(s.Guest) + "?" + url.Values{"purge": {"1"}, "destroy-unreferenced-disks": {"0"}}.Encode()
	if err := r.Client.call(ctx, http.MethodDelete, path, &task); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := r.note(Step{Kind: StepTask, Task: task}, s); err != nil {
		return err
	}
	if err := r.finish(ctx, task); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// gone proves that the id is free, for every token and on every node, and looks
// for what is left on the storages that the machine had volumes on.
func (r *Removal) gone(ctx context.Context, s Subject) (Remains, error) {
	err := r.until(ctx, "its task has ended, but the id is still taken", func() (bool, error) {
		taken, err := r.Client.Taken(ctx, s.ID)
		return !taken, err
	})
	if err != nil {
		return Remains{}, err
	}
	if err := r.note(Step{Kind: StepGone}, s); err != nil {
		return Remains{Gone: true}, err
	}
	remains, err := r.Client.remains(ctx, s)
	remains.Gone = true
	if err != nil {
		return remains, fmt.Errorf("is gone, but whether its disks are could not be asked: %w", err)
	}
	if left := slices.Concat(remains.Own, remains.Unreferenced); len(left) > 0 {
		return remains, r.note(Step{Kind: StepLeft, Volumes: left}, s)
	}
	return remains, nil
}

func (r *Removal) note(step Step, s Subject) error {
	step.Time, step.ID, step.Name, step.Node = time.Now().UTC(), s.ID, s.Name, s.Node
	step.SMBIOS, step.Meta = s.Config["smbios1"], s.Config["meta"]
	if r.Note == nil {
		return nil
	}
	return r.Note(step)
}
