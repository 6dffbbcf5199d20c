package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/revision"
)

// haEntry is a resource or a rule of the high-availability stack. Its digest is that of all of them.
type haEntry struct {
	SID  string `json:"sid"`  // of a resource: vm:421
	Rule string `json:"rule"` // its name

	State       string `json:"state"`
	MaxRestart  any    `json:"max_restart"`
	MaxRelocate any    `json:"max_relocate"`
	Failback    any    `json:"failback"`
	Resources   string `json:"resources"`
	Affinity    string `json:"affinity"`
	Disable     any    `json:"disable"`
}

func (e haEntry) Key() string { return cmp.Or(e.SID, e.Rule) }

// availability returns the options of all resources or rules, by name.
func (c *Client) availability(ctx context.Context, kind string) (map[string]string, error) {
	path := "cluster/ha/resources"
	if kind == platform.HARule {
		path = "cluster/ha/rules"
	}
	entries, err := list[haEntry](ctx, c, path)
	if KindOf(err) == Forbidden {
		err = fmt.Errorf("%w; give the token Sys.Audit on /", err)
	}
	all := map[string]string{}
	for _, e := range entries {
		all[e.Key()] = fmt.Sprint(e)
	}
	return all, err
}

// available looks for a resource or a rule. Another guest that has got the id since may have a resource.
func (v *inventory) available(ctx context.Context, o platform.Object) event.OwnedObject {
	id, _ := strconv.Atoi(strings.TrimPrefix(o.Volume, "vm:")) //nolint:errcheck // a rule has none
	all, err := v.client.availability(ctx, o.Kind)
	_, exists := all[o.Volume]
	switch _, taken := v.others[id]; {
	case err != nil:
		return unproved(err)
	case exists && taken:
		return event.OwnedObject{Gone: true, Reason: "the id belongs to another guest now"}
	case exists:
		return event.OwnedObject{Reason: "still there", Fix: remedy(o)}
	}
	return event.OwnedObject{Gone: true}
}

// readAvailability sets the revisions of resources, or of rules.
func readAvailability(ctx context.Context, c *Client, objects []*revision.Object) error {
	all, err := c.availability(ctx, objects[0].Kind)
	for _, o := range objects {
		o.Revision = all[o.Name]
	}
	return err
}
