package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Facts reads how the machines among known are now, with one list of guests and two requests for each.
func (s Search) Facts(ctx context.Context, known []gate.Known) ([]platform.Fact, error) {
	isNone := func(k gate.Known) bool { return values.MachineOf(k).VM == 0 }
	known = slices.DeleteFunc(slices.Clone(known), isNone)
	if len(known) == 0 {
		return nil, nil
	}
	guests, err := s.Client.Guests(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]platform.Fact, len(known))
	together(len(known), func(i int) { all[i] = factOf(ctx, s.Client, guests, known[i]) })
	return platform.Apart(all), context.Cause(ctx)
}

// factOf compares a machine with its state. Where somebody else's has its id, nothing else matters.
func factOf(ctx context.Context, c *Client, guests []Guest, k gate.Known) platform.Fact {
	m := values.MachineOf(k)
	key, _ := terraform.KeyOf(k.Address)
	f := platform.Fact{Key: cmp.Or(key, m.Name), ID: m.VM, Called: called(m.VM), Status: "unknown"}
	i := slices.IndexFunc(guests, func(g Guest) bool { return g.ID == m.VM })
	if i < 0 {
		switch taken, err := c.Taken(ctx, m.VM); {
		case err != nil:
			f.Differ("cannot be read: %v", err)
		case taken:
			f.Differ("is invisible to this API token; %s", auditFix(m.VM))
		default:
			f.Status = "absent"
			f.Differ("does not exist any more")
		}
		return f
	}
	g := guests[i]
	f.Node, f.Where, f.Status = g.Node, "on node "+g.Node, cmp.Or(g.Status, f.Status)
	if !g.isVM() {
		f.Differ("is another guest: %s", g)
		return f
	}
	g, err := c.configured(ctx, g)
	if err != nil {
		f.Differ("on node %s cannot be read: %v", g.Node, err)
		return f
	}
	f.UUID, f.Disks, f.Cards = g.UUID(), g.Config.Disks(), g.Config.Cards()
	if same, proved := g.matches(m); proved && !same {
		f.Differ("is not castle's machine but %s: expected the %s", g, otherUUID(m, g))
		return f
	}
	if g.Status == "running" {
		if f.Pending, err = c.pending(ctx, g); err != nil {
			f.Differ("may wait for a restart: %v", err)
		}
	}
	if home := values.Home(k); home != "" && home != g.Node {
		f.Differ("has moved from node %s to node %s; %s", home, g.Node, stay(f.Key, g.Node))
	}
	g.Config.Describe(&f)
	f.Compare(values.ReadAttributes(k.Attributes).Left(f.Disks), m.MACs)
	return f
}

// pending lists the changes that wait until the guest is stopped and started.
func (c *Client) pending(ctx context.Context, g Guest) ([]string, error) {
	rows, err := get(ctx, c, g.path()+"/pending", func(rows []Config) string {
		isLacking := func(row Config) bool { return row["key"] == "" }
		return textIf(len(rows) == 0 || slices.ContainsFunc(rows, isLacking), "options without keys")
	})
	return values.Pending(rows), err
}

// stay is how a machine that has moved stays where it is.
func stay(key, node string) string {
	return fmt.Sprintf("to keep it there, set node_name = %q for %s in terraform.tfvars", node, key)
}
