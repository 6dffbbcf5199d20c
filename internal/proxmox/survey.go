package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Survey reads every guest that stands in a range, in the order of their ids,
// with all that a Claim judges it by. What must be known and cannot be asked is
// an error; what cannot be read of one guest is said in its Subject.
func (c *Client) Survey(ctx context.Context, r Range) ([]Subject, error) {
	// First which ids are taken, then the list, so that what the list hides is found.
	taken := map[int]bool{}
	for id := r.From; id <= r.To; id++ {
		var err error
		if taken[id], err = c.Taken(ctx, id); err != nil {
			return nil, err
		}
	}
	listed, err := c.Guests(ctx)
	if err != nil {
		return nil, err
	}
	replicated, err := c.replicated(ctx)
	if err != nil {
		return nil, err
	}
	found := map[int]Subject{}
	for id := range taken {
		if taken[id] {
			found[id] = Subject{Guest: Guest{ID: id}, Hidden: true}
		}
	}
	for _, g := range listed {
		if !r.Contains(g.ID) {
			continue
		}
		s := Subject{Guest: g, HA: g.HAState != "", Replication: replicated[g.ID]}
		if g.Kind == "qemu" {
			if err := c.examine(ctx, &s); IsMissing(err) {
				continue // gone since it was listed
			} else if err != nil {
				return nil, err
			}
		}
		found[g.ID] = s
	}
	var all []Subject
	for _, id := range slices.Sorted(maps.Keys(found)) {
		s := found[id]
		if s.Hidden { // perhaps it has gone between the two questions
			if still, err := c.Taken(ctx, id); err != nil {
				return nil, err
			} else if !still {
				continue
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// examine completes a virtual machine of the list, which is a little old and
// does not say everything.
func (c *Client) examine(ctx context.Context, s *Subject) error {
	config, err := c.Config(ctx, s.Node, s.ID)
	if err == nil {
		err = c.presently(ctx, s)
	}
	var refused *Error
	switch {
	case err == nil:
		s.Config, s.Name = config, cmp.Or(config["name"], s.Name)
		return nil
	case errors.As(err, &refused) && refused.Code >= unanswered:
		s.Unreadable = fmt.Sprintf("node %s does not answer (%v)", s.Node, refused)
	case IsForbidden(err):
		s.Unreadable = "its configuration may not be read (VM.Audit)"
	default:
		return err
	}
	return nil
}

// presently reads whether the guest runs and whether it is highly available.
func (c *Client) presently(ctx context.Context, s *Subject) error {
	var now struct {
		Status string `json:"status"`
		HA     struct {
			Managed any `json:"managed"` // a number, or a boolean, or a string of one
		} `json:"ha"`
	}
	if err := c.get(ctx, guestPath(s.Guest)+"/status/current", &now); err != nil {
		return err
	}
	s.Status = now.Status
	s.HA = s.HA || now.HA.Managed != nil && on(fmt.Sprint(now.HA.Managed))
	return nil
}

// unanswered is the first of the codes that say that a node does not answer.
const unanswered = 595

// replicated lists the guests that a replication job exists for.
func (c *Client) replicated(ctx context.Context) (map[int]bool, error) {
	var jobs []struct {
		Guest any    `json:"guest"`
		ID    string `json:"id"` // 421-0
	}
	if err := c.get(ctx, "cluster/replication", &jobs); err != nil {
		return nil, err
	}
	all := map[int]bool{}
	for _, j := range jobs {
		guest, _, _ := strings.Cut(j.ID, "-")
		all[atoi(guest)], all[attributeInt(j.Guest)] = true, true
	}
	return all, nil
}

func guestPath(g Guest) string {
	return fmt.Sprintf("nodes/%s/%s/%d", url.PathEscape(g.Node), g.Kind, g.ID)
}
