package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Search asks a datacenter whether traces are gone.
//
// The provider does not wait for every task that it starts: it calls an image
// deleted whose deletion has only begun. So what is still there, and is being
// worked on, is waited for. A list that the token sees only a part of proves
// nothing; neither does a node that does not answer.
type Search struct {
	Client   *Client
	Interval time.Duration // between two looks; a second, if 0
	Patience time.Duration // with tasks that go on; ten minutes, if 0
}

// Gone says of each trace, and of each other disk that carries the id of a
// machine among them, whether it is gone. Report is told once what is waited for.
// The error is that of a context that has ended.
func (s Search) Gone(ctx context.Context, traces []Trace, report func(string)) ([]event.OwnedObject, error) {
	interval, patience := cmp.Or(s.Interval, time.Second), cmp.Or(s.Patience, 10*time.Minute)
	began, told := time.Now(), false
	for {
		l := look{Client: s.Client, ctx: ctx}
		tasks := l.running() // first: one that ends before the look has had its effect
		things := l.all(traces)
		if ctx.Err() != nil {
			return things, context.Cause(ctx)
		}
		busy := l.busy(tasks)
		if len(busy) == 0 {
			return things, nil
		}
		if time.Since(began) >= patience {
			for i, task := range busy {
				things[i].Gone = false
				things[i].Reason = fmt.Sprintf("Proxmox' task %s is still running after %s", task.Kind, patience)
			}
			return things, nil
		}
		if !told {
			told = true
			for _, i := range slices.Sorted(maps.Keys(busy)) {
				report(fmt.Sprintf("%s %s: Proxmox' task %s is still running; waiting for it", things[i].Kind, things[i].ID, busy[i].Kind))
			}
		}
		if err := sleep(ctx, interval); err != nil {
			return things, err
		}
	}
}

// Now is Gone at one look: tasks that go on are not waited for.
func (s Search) Now(ctx context.Context, traces []Trace) []event.OwnedObject {
	l := look{Client: s.Client, ctx: ctx}
	l.running()
	return l.all(traces)
}

// Survey adds the disks that carry the ids of the machines among traces now,
// as far as they can be seen: cloud-init drives are in no state.
func (s Search) Survey(ctx context.Context, traces []Trace) []Trace {
	l := look{Client: s.Client, ctx: ctx}
	l.running()
	l.storages(traces)
	for _, d := range l.disks {
		if !slices.ContainsFunc(traces, d.is) {
			traces = append(traces, d.Trace)
		}
	}
	return traces
}

// busy are the things that a task may still change, by index.
func (l *look) busy(tasks map[string][]Task) map[int]Task {
	found := map[int]Task{}
	for i, t := range l.traces {
		for node, running := range tasks {
			for _, task := range running {
				if (t.Node == node || t.Kind == Machine) && task.concerns(t, !l.things[i].Gone) {
					found[i] = task
				}
			}
		}
	}
	return found
}
