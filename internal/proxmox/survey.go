package proxmox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Survey reads every guest in a range, in the order of their ids, with everything that Ownership needs. An
// unanswered question about one guest is in its Unreadable; any other is an error.
func (c *Client) Survey(ctx context.Context, r Range) ([]Guest, error) {
	var ids []int
	for id := r.From; id <= r.To; id++ {
		ids = append(ids, id)
	}
	found, err := c.guestsOn(ctx, ids)
	if err != nil {
		return nil, err
	}
	replicated, err := replicated(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []Guest
	for _, id := range slices.Sorted(maps.Keys(found)) {
		g := found[id]
		g.HA, g.Replicated = g.HAState != "", replicated[id]
		if g.isVM() {
			if err := complete(ctx, c, &g); KindOf(err) == Missing {
				continue // gone since it was listed
			} else if err != nil {
				return nil, err
			}
		}
		all = append(all, g)
	}
	return all, nil
}

// guestsOn returns the guests with these ids. It reads the taken ids before the list, so that guests that
// the list hides are found.
func (c *Client) guestsOn(ctx context.Context, ids []int) (map[int]Guest, error) {
	found := map[int]Guest{}
	for _, id := range ids {
		if taken, err := c.Taken(ctx, id); err != nil {
			return nil, err
		} else if taken {
			found[id] = Guest{ID: id, Hidden: true}
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	listed, err := c.Guests(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range listed {
		if slices.Contains(ids, g.ID) {
			found[g.ID] = g
		}
	}
	for id, g := range found {
		if !g.Hidden {
			continue
		}
		if still, err := c.Taken(ctx, id); err != nil {
			return nil, err
		} else if !still { // it has gone since the first request
			delete(found, id)
		}
	}
	return found, nil
}

// complete adds configuration and status to a virtual machine of the list, which is a little old.
func complete(ctx context.Context, c *Client, g *Guest) error {
	config, err := c.Config(ctx, g.Node, g.ID)
	if err == nil {
		err = refresh(ctx, c, g)
	}
	switch KindOf(err) {
	case Unreachable:
		var e *Error
		errors.As(err, &e)
		g.Unreadable = fmt.Sprintf("node %s does not answer (%v)", g.Node, e)
	case Forbidden:
		g.Unreadable = "its configuration may not be read (VM.Audit)"
	default:
		if err == nil {
			*g = g.with(config)
		}
		return err
	}
	return nil
}

// refresh reads whether the guest runs and whether it is highly available.
func refresh(ctx context.Context, c *Client, g *Guest) error {
	var now struct {
		Status string `json:"status"`
		HA     struct {
			Managed any `json:"managed"` // a number, or a boolean, or a string of one
		} `json:"ha"`
	}
	if err := c.get(ctx, g.path()+"/status/current", &now); err != nil {
		return err
	}
	g.Status = now.Status
	g.HA = g.HA || now.HA.Managed != nil && on(fmt.Sprint(now.HA.Managed))
	return nil
}

// replicated lists the guests that a replication job exists for.
func replicated(ctx context.Context, c *Client) (map[int]bool, error) {
	var jobs []struct {
		Guest any    `json:"guest"`
		ID    string `json:"id"` // 421-0
	}
	err := c.get(ctx, "cluster/replication", &jobs)
	all := map[int]bool{}
	for _, j := range jobs {
		guest, _, _ := strings.Cut(j.ID, "-")
		all[attributeInt(guest)], all[attributeInt(j.Guest)] = true, true
	}
	return all, err
}
