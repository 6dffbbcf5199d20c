package host

import (
	"cmp"
	"context"
	"fmt"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
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

// Availability returns the options of all resources of high availability, or of its rules, by name.
func (h Hosts) Availability(ctx context.Context, kind string) (map[string]string, error) {
	entries, err := session.List[haEntry](ctx, h.Session, "cluster/ha/"+kind)
	all := xslices.ToMap(entries, func(e haEntry) (string, string) { return e.Key(), fmt.Sprint(e) })
	return all, err
}
