package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// notOwn is why a guest that the state does not know cannot be castle's own.
func (c *vmCheck) notOwn(s slot, g Guest) string {
	missing, node := g.missing(c.tags), c.nodeOf(s.key)
	switch {
	case g.Lock == "create":
		return "its creation was never finished"
	case g.Name != c.name(s.key):
		return fmt.Sprintf("castle's own would be called %q", c.name(s.key))
	case len(missing) > 0:
		return fmt.Sprintf("castle's own would be tagged %s", strings.Join(missing, ", "))
	case node != "" && g.Node != node:
		return fmt.Sprintf("castle's own would be on node %s", node)
	case s.elsewhere != nil:
		id := attributeInt(s.elsewhere.Attributes["vm_id"])
		return fmt.Sprintf("%s has VM %d in the state", s.elsewhere.Address, id)
	}
	return ""
}

// recycled returns why a guest is not the one that the state has under this id. If neither uuid nor hardware
// address proves it, name and tags must match. They may match the state instead of the configuration, which
// may have just changed.
func (c *vmCheck) recycled(s slot, g Guest) string {
	was := machineOf(*s.known)
	switch same, proved := g.matches(was); {
	case proved && same:
		return ""
	case proved && was.UUID != "" && g.Config.uuid() != "":
		return fmt.Sprintf("the state knows this id as another machine (uuid %s, and this one's is %s)",
			was.UUID, g.Config.uuid())
	case proved:
		return fmt.Sprintf("the state knows this id as another machine (%s)", strings.Join(was.MACs, ", "))
	}
	if g.Name != was.Name && (s.key == "" || g.Name != c.name(s.key)) {
		return fmt.Sprintf("the state knows this id as %q", cmp.Or(was.Name, c.name(s.key)))
	}
	then := attributeStrings(s.known.Attributes["tags"])
	if missing := g.missing(c.tags); len(missing) > 0 && (len(then) == 0 || len(g.missing(then)) > 0) {
		return fmt.Sprintf("it is no longer tagged %s", strings.Join(missing, ", "))
	}
	return ""
}

// foreign describes a guest that blocks an id, why it is foreign, and the fixes. After none of them does a
// create remove it.
func (c *vmCheck) foreign(ctx context.Context, s slot, g Guest, why string) gate.Foreign {
	f := gate.Foreign{What: g.describe(), Why: why, Fixes: otherID(s)}
	if s.known == nil && g.isVM() && g.Lock == "create" {
		f.Fixes = append(f.Fixes,
			fmt.Sprintf("remove it as root on node %s: qm unlock %d && qm destroy %d", g.Node, g.ID, g.ID))
		return f
	}
	f.Fixes = append(f.Fixes, "remove it in Proxmox")
	if s.known != nil {
		f.ConflictsWith = s.known.Address
		return f
	}
	f.Nuke = c.nukeRange(ctx, g)
	// It may be the stage's own after all, renamed, moved or without its tags since.
	likely := g.Name == c.name(s.key) || len(g.missing(c.tags)) == 0
	if g.isVM() && s.elsewhere == nil && likely {
		own := c.importOf(s, g)
		f.Import = &own
	}
	return f
}

// untracked is a guest that is ours by name, tags and node, but not in the state.
func (c *vmCheck) untracked(ctx context.Context, s slot, g Guest) gate.Own {
	return gate.Own{Import: c.importOf(s, g), AsForeign: gate.Foreign{
		What: g.describe(),
		Why: "its name, tags and node are those of " + s.key +
			", but nothing here knows that castle made it",
		Fixes: otherID(s), Nuke: c.nukeRange(ctx, g),
	}}
}

// nukeRange returns the range with which castle nuke would delete a guest as this cluster's. It is empty if
// nuke would keep the guest, or if that is unknown.
func (c *vmCheck) nukeRange(ctx context.Context, g Guest) string {
	r := Range{From: g.ID, To: g.ID}
	if !g.isVM() || len(g.missing(c.tags)) > 0 {
		return ""
	}
	all, err := c.client.Survey(ctx, r)
	if err != nil || len(all) != 1 || len(Ownership{Range: r}.Refusals(all[0])) > 0 {
		return ""
	}
	return r.String()
}

// importOf returns the import that makes a guest the machine of its slot's key.
func (c *vmCheck) importOf(s slot, g Guest) gate.Import {
	what := fmt.Sprintf("VM %d %q", g.ID, g.Name)
	return gate.Import{Address: c.address(s.key), ID: fmt.Sprintf("%s/%d", g.Node, g.ID), What: what}
}

// invisible is a guest that exists and that the token may not read.
func invisible(s slot) gate.Foreign {
	return gate.Foreign{
		What:       fmt.Sprintf("VM %d, which exists but is invisible to this API token", s.id),
		Fixes:      append(otherID(s), auditFix(s.id)),
		Unverified: s.known != nil,
	}
}

// unreachable is a guest of which only the list's line can be read, since its node is offline.
func (c *vmCheck) unreachable(s slot, g Guest) gate.Foreign {
	// A list does not always know the names of guests on such a node.
	unnamed := g.Name == "" || g.Name == fmt.Sprintf("VM %d", g.ID)
	return gate.Foreign{
		What:       g.describe(),
		Why:        fmt.Sprintf("node %s is offline, so its owner is unknown", g.Node),
		Fixes:      append(otherID(s), fmt.Sprintf("bring node %s back", g.Node)),
		Unverified: s.known != nil || unnamed || g.Name == c.name(s.key),
	}
}

// otherID is the fix for a machine of the configuration.
func otherID(s slot) []string {
	if s.key == "" {
		return nil
	}
	return []string{fmt.Sprintf("give %s another VM id", s.key)}
}
