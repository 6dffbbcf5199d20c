package proxmox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Hindered lists the machines among traces that Proxmox would not delete now,
// with what keeps it from doing so and the way out. It would only say so when
// others are gone already: of a lock, a task that was begun long ago speaks.
func (c *Client) Hindered(ctx context.Context, traces []Trace) ([]event.OwnedObject, error) {
	listed, err := c.Guests(ctx)
	if err != nil {
		return nil, err
	}
	var hindered []event.OwnedObject
	for _, t := range traces {
		i := slices.IndexFunc(listed, func(g Guest) bool { return t.Kind == Machine && g.ID == t.VM && g.Kind == "qemu" })
		if i < 0 {
			continue
		}
		config, err := c.Config(ctx, listed[i].Node, t.VM)
		if IsMissing(err) {
			continue // gone since it was listed
		}
		if err != nil {
			return nil, err
		}
		g := guest{Guest: listed[i]}.complete(config)
		if way := g.release(); way != "" {
			hindered = append(hindered, event.OwnedObject{Kind: Machine, ID: t.ID(), Where: "node " + g.Node, Reason: g.held(), Fix: way})
		}
	}
	return hindered, nil
}

// held says what keeps Proxmox from deleting a machine.
func (g guest) held() string {
	var marks []string
	if g.Lock != "" {
		marks = append(marks, "locked ("+g.Lock+")")
	}
	if g.protected {
		marks = append(marks, "protected")
	}
	return fmt.Sprintf("%q, %s", g.Name, strings.Join(marks, ", "))
}

// release says how a machine that Proxmox does not delete can be deleted again;
// "" if it is free. No API token can take a lock away, only root on its node. One
// that was suspended to disk is locked, too, and deleted all the same.
func (g guest) release() string {
	var ways []string
	if g.Lock != "" && g.Lock != "suspended" {
		ways = append(ways, fmt.Sprintf("when what has locked it (%s) has ended, run the same command again; "+
			"if nothing is going on any more, as root on node %s: qm unlock %d", g.Lock, g.Node, g.ID))
	}
	if g.protected {
		ways = append(ways, fmt.Sprintf("its owner may take the protection away in Proxmox (Options), or as root on node %s: "+
			"qm set %d --protection 0", g.Node, g.ID))
	}
	return strings.Join(ways, "; ")
}
