package proxmox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// seen is a guest as the list shows it, for want of anything better.
func (g Guest) seen() guest { return guest{Guest: g, tags: splitTags(g.Tags)} }

func (g guest) String() string {
	kind := "VM"
	if g.Kind != "qemu" {
		kind = "container"
	}
	if g.Name == "" {
		return fmt.Sprintf("%s %d on node %s", kind, g.ID, g.Node)
	}
	return fmt.Sprintf("%s %d %q on node %s", kind, g.ID, g.Name, g.Node)
}

// describe is a guest in one line: VM 421 "prod-database" on node proxmox,
// running for 12 days, pool db, no tags.
func (g guest) describe() string {
	text := fmt.Sprintf("%s, %s", g, cmp.Or(strings.TrimPrefix(g.Status, "unknown"), "state unknown"))
	if since := lasting(time.Duration(g.Uptime) * time.Second); since != "" && g.Status == "running" {
		text += " for " + since
	}
	if g.Pool != "" {
		text += ", pool " + g.Pool
	}
	if len(g.tags) > 0 {
		text += ", tags: " + strings.Join(g.tags, ", ")
	} else {
		text += ", no tags"
	}
	if g.Lock != "" {
		text += ", locked (" + g.Lock + ")"
	}
	if g.protected {
		text += ", protected"
	}
	return text
}

// lasting is how long something has lasted, in its largest unit; empty if that
// is less than a minute.
func lasting(d time.Duration) string {
	for _, unit := range []struct {
		name string
		long time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		switch n := d / unit.long; {
		case n == 1:
			return "1 " + unit.name
		case n > 1:
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return ""
}

// foreign says what is in the way, why castle takes it for somebody else's, and
// how to get out. No way out makes a create remove it.
func (c *vmCheck) foreign(ctx context.Context, s slot, g guest, why string) gate.Foreign {
	f := gate.Foreign{What: g.describe(), Why: why, Fixes: otherID(s)}
	if s.known == nil && g.Kind == "qemu" && g.Lock == "create" {
		f.Fixes = append(f.Fixes, fmt.Sprintf("remove it as root on node %s: qm unlock %d && qm destroy %d", g.Node, g.ID, g.ID))
		return f
	}
	f.Fixes = append(f.Fixes, "remove it in Proxmox")
	if s.known != nil {
		f.ConflictsWith = s.known.Address
		return f
	}
	f.Nuke = c.nukes(ctx, g)
	if g.Kind == "qemu" && s.elsewhere == nil && c.perhapsOurs(s, g) {
		own := c.own(s, g)
		f.Import = &own
	}
	return f
}

// perhapsOurs reports whether a guest could be the stage's own after all,
// renamed, moved or without its tags since: either the name or every tag is right.
func (c *vmCheck) perhapsOurs(s slot, g guest) bool {
	return g.Name == c.name(s.key) || len(lacking(g.tags, c.tags)) == 0
}

// unclaimed is a guest that is ours by all that can be seen of it.
func (c *vmCheck) unclaimed(ctx context.Context, s slot, g guest) gate.Own {
	return gate.Own{Import: c.own(s, g), AsForeign: gate.Foreign{
		What:  g.describe(),
		Why:   "its name, tags and node are those of " + s.key + ", but nothing here knows that castle made it",
		Fixes: otherID(s), Nuke: c.nukes(ctx, g),
	}}
}

// nukes is the range with which castle nuke would take a guest as this cluster's;
// empty if it would not, or if that cannot be told.
func (c *vmCheck) nukes(ctx context.Context, g guest) string {
	r := Range{From: g.ID, To: g.ID}
	if g.Kind != "qemu" || len(lacking(g.tags, c.tags)) > 0 {
		return ""
	}
	all, err := c.client.Survey(ctx, r)
	if err != nil || len(all) != 1 || len(Claim{Range: r}.Judge(all[0])) > 0 {
		return ""
	}
	return r.String()
}

// invisible is a guest that exists but that the token may not look at.
func (c *vmCheck) invisible(s slot) gate.Foreign {
	return gate.Foreign{
		What:       fmt.Sprintf("VM %d, which exists but is invisible to this API token", s.id),
		Fixes:      append(otherID(s), fmt.Sprintf("give the token VM.Audit on /vms/%d to see what it is", s.id)),
		Unverified: s.known != nil,
	}
}

// unreachable is a guest of which nothing but the list's line can be read, since
// its node is offline. It is there all the same.
func (c *vmCheck) unreachable(s slot, g guest) gate.Foreign {
	return gate.Foreign{
		What:  g.describe(),
		Why:   fmt.Sprintf("node %s is offline, so that nobody can tell whose it is", g.Node),
		Fixes: append(otherID(s), fmt.Sprintf("bring node %s back", g.Node)),
		// A list does not always know the names of guests on such a node.
		Unverified: s.known != nil || g.Name == "" || g.Name == fmt.Sprintf("VM %d", g.ID) || g.Name == c.name(s.key),
	}
}

// ground notes what is wrong with the node that a machine is to be built on.
func (c *vmCheck) ground(s slot, at site) {
	node := cmp.Or(c.nodes[s.key], c.node)
	if s.key == "" || node == "" {
		return
	}
	var names []string
	for _, n := range at.nodes {
		names = append(names, n.Name)
	}
	switch statusOf(at.nodes, node) {
	case offline:
		at.found.Unusable = append(at.found.Unusable, gate.Foreign{
			What:  fmt.Sprintf("node %s, where %s is to be built, is offline", node, s.key),
			Fixes: []string{"bring it back", "give " + s.key + " another node"},
		})
	case "":
		at.found.Unusable = append(at.found.Unusable, gate.Foreign{
			What:  fmt.Sprintf("node %s, where %s is to be built, does not exist; there is %s", node, s.key, strings.Join(names, ", ")),
			Fixes: []string{"give " + s.key + " a node that is there"},
		})
	}
}

// statusOf is a node's status; empty if there is no such node.
func statusOf(nodes []Node, name string) string {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return ""
	}
	return cmp.Or(nodes[i].Status, "unknown")
}

// otherID is the way out for a machine that the configuration wants.
func otherID(s slot) []string {
	if s.key == "" {
		return nil
	}
	return []string{fmt.Sprintf("give %s another VM id", s.key)}
}

// own says how a guest becomes the machine of its slot's key.
func (c *vmCheck) own(s slot, g guest) gate.Import {
	return gate.Import{Address: c.address(s.key), ID: fmt.Sprintf("%s/%d", g.Node, g.ID), What: fmt.Sprintf("VM %d %q", g.ID, g.Name)}
}

// attributeInt reads a number as Terraform's state carries it; 0 if there is none.
func attributeInt(v any) int {
	switch n := v.(type) {
	case int:
		return n
	case int64:
		return int(n)
	case float64:
		return int(n)
	case json.Number:
		return atoi(n.String())
	case string:
		return atoi(n)
	}
	return 0
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

func attributeStrings(v any) []string {
	if all, ok := v.([]string); ok {
		return all
	}
	var all []string
	list, _ := v.([]any) //nolint:errcheck // anything else counts as none
	for _, x := range list {
		if s, ok := x.(string); ok {
			all = append(all, s)
		}
	}
	return all
}
