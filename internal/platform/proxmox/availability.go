package proxmox

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/revision"
)

// availability returns the options of all resources of high availability, or of its rules, by name.
func (c *Client) availability(ctx context.Context, kind string) (map[string]string, error) {
	paths := map[string]string{platform.HAResource: "resources", platform.HARule: "rules"}
	all, err := c.Hosts().Availability(ctx, paths[kind])
	if KindOf(err) == Forbidden {
		err = fmt.Errorf("%w; give the token Sys.Audit on /", err)
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
