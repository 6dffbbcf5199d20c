package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// detached lists the disks that a machine has lost and that still exist: those of its options unusedN, and
// those that the state knows and that another option names, or none. The provider compares a machine's drives
// and looks for no volume: it plans an empty disk in the place of one that was detached.
func (c *Client) detached(ctx context.Context, s slot, g Guest) (all []gate.Detached) {
	address, was := s.address, map[string]string{} // the drives of volumes in the state
	if s.known != nil {
		address = s.known.Address
		for _, d := range values.ReadAttributes(s.known.Attributes).Disks {
			if d.Storage != "" && d.Path != "" {
				was[d.Storage+":"+d.Path] = d.Interface
			}
		}
	}
	add := func(volume, where, detach string) {
		text := "disk %s of VM %d is %s, and an empty one would replace it; to attach it again, as root on " +
			"node %s: %sqm set %[2]d --%[6]s %[1]s"
		drive := cmp.Or(was[volume], "scsiN")
		all = append(all, gate.Detached{Address: address,
			Text: fmt.Sprintf(text, volume, g.ID, where, g.Node, detach, drive)})
		delete(was, volume)
	}
	for _, option := range sortedKeys(g.Config) {
		switch volume := g.Config.Volume(option); {
		case volume == "":
		case strings.HasPrefix(option, "unused"):
			add(volume, "detached ("+option+")", "")
		case was[volume] != "" && was[volume] != option:
			add(volume, fmt.Sprintf("attached as %s instead of %s", option, was[volume]),
				fmt.Sprintf("qm set %d --delete %s && ", g.ID, option))
		default:
			delete(was, volume)
		}
	}
	for _, volume := range sortedKeys(was) { // removed from the configuration, but not as Proxmox does it
		left, err := c.Volumes(ctx, g.Node, values.StorageOf(volume), "images", 0)
		if _, exists := left[volume]; exists || err != nil {
			add(volume, "in none of its options"+textIf(err != nil, " and may still exist"), "")
		}
	}
	return all
}
