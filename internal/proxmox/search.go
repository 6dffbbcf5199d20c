package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Search checks whether owned objects are gone.
//
// The provider does not wait for every task that it starts: it reports an image as deleted whose deletion
// has only begun. So a Search waits for tasks that work on objects that exist. A list of which the token
// sees only a part proves nothing; neither does a node that does not answer.
type Search struct {
	Client   *Client
	Interval time.Duration // between two looks; a second, if 0
	Timeout  time.Duration // of waiting for tasks; ten minutes, if 0
}

// Gone checks each object, and each other disk with the id of a machine among them. It reports each reason
// to wait once. The error is that of a context that has ended.
func (s Search) Gone(ctx context.Context, all []Owned, report func(string)) ([]event.OwnedObject, error) {
	timeout := cmp.Or(s.Timeout, 10*time.Minute)
	began, reported := time.Now(), false
	for {
		v, tasks := newInventory(ctx,
			s.Client) // tasks first: one that ends before the check has had its effect
		results := v.check(ctx, all)
		if ctx.Err() != nil {
			return objects(results), context.Cause(ctx)
		}
		busy := busy(results, tasks)
		if len(busy) == 0 {
			return objects(results), nil
		}
		if time.Since(began) >= timeout {
			for i, task := range busy {
				results[i].object.Gone = false
				reason := fmt.Sprintf("Proxmox' task %s is still running after %s", task.Kind, timeout)
				results[i].object.Reason = reason
			}
			return objects(results), nil
		}
		if !reported {
			reported = true
			for _, i := range slices.Sorted(maps.Keys(busy)) {
				report(fmt.Sprintf("%s %s: Proxmox' task %s is still running; waiting for it",
					results[i].object.Kind, results[i].object.ID, busy[i].Kind))
			}
		}
		if err := sleep(ctx, cmp.Or(s.Interval, time.Second)); err != nil {
			return objects(results), err
		}
	}
}

// Now is Gone without waiting for tasks.
func (s Search) Now(ctx context.Context, all []Owned) []event.OwnedObject {
	v, _ := newInventory(ctx, s.Client)
	return objects(v.check(ctx, all))
}

// Complete adds the disks with the ids of the machines among all that the token can see now: cloud-init
// drives are in no state.
func (s Search) Complete(ctx context.Context, all []Owned) []Owned {
	v, _ := newInventory(ctx, s.Client)
	v.readDisks(ctx, all)
	for _, d := range v.disks {
		if !slices.ContainsFunc(all, d.is) {
			all = append(all, d.owned)
		}
	}
	return all
}

// Blocked lists the machines among all that Proxmox would not delete now, with why and the remedy. Proxmox
// itself reports a lock only in a task that was started, when other machines are gone already.
func (s Search) Blocked(ctx context.Context, all []Owned) ([]event.OwnedObject, error) {
	listed, err := s.Client.Guests(ctx)
	if err != nil {
		return nil, err
	}
	var blocked []event.OwnedObject
	for _, o := range all {
		i := slices.IndexFunc(listed, func(g Guest) bool {
			return o.Kind == Machine && g.ID == o.VM && g.isVM()
		})
		if i < 0 {
			continue
		}
		g := listed[i]
		config, err := s.Client.Config(ctx, g.Node, o.VM)
		if KindOf(err) == Missing {
			continue // gone since it was listed
		}
		if err != nil {
			return nil, err
		}
		g = g.with(config)
		if reasons, fixes := g.blocked(); len(fixes) > 0 {
			blocked = append(blocked, event.OwnedObject{
				Kind: Machine, ID: o.ID(), Where: "node " + g.Node,
				Reason: fmt.Sprintf("%q, %s", g.Name, strings.Join(reasons, ", ")),
				Fix:    strings.Join(fixes, "; "),
			})
		}
	}
	return blocked, nil
}

func objects(results []result) []event.OwnedObject {
	var all []event.OwnedObject
	for _, r := range results {
		all = append(all, r.object)
	}
	return all
}

// busy are the results that a task may still change, by index.
func busy(results []result, tasks map[string][]task) map[int]task {
	found := map[int]task{}
	for i, r := range results {
		for node, running := range tasks {
			for _, task := range running {
				if (r.owned.Node == node || r.owned.Kind == Machine) &&
					task.concerns(r.owned, !r.object.Gone) {
					found[i] = task
				}
			}
		}
	}
	return found
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func sortedKeys[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }
