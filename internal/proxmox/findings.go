package proxmox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func (g guest) String() string {
	kind := "VM"
	if g.Kind != "qemu" {
		kind = "container"
	}
	return fmt.Sprintf("%s %d %q on node %s", kind, g.ID, g.Name, g.Node)
}

// describe is a guest in one line: VM 421 "prod-database" on node proxmox, running, no tags.
func (g guest) describe() string {
	text := fmt.Sprintf("%s, %s", g, cmp.Or(g.Status, "state unknown"))
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

// foreign says what is in the way, why castle takes it for somebody else's, and
// how to get out. There is no way out that makes castle remove it.
func (c *vmCheck) foreign(s slot, g guest, why string) gate.Foreign {
	f := gate.Foreign{What: g.describe(), Why: why, Ways: otherID(s)}
	if s.known == nil && g.Kind == "qemu" && g.Lock == "create" {
		f.Ways = append(f.Ways, fmt.Sprintf("remove it as root on node %s: qm unlock %d && qm destroy %d", g.Node, g.ID, g.ID))
		return f
	}
	f.Ways = append(f.Ways, "remove it in Proxmox")
	switch {
	case s.known != nil:
		f.Mistaken = s.known.Address
	case g.Kind == "qemu" && s.elsewhere == nil:
		own := c.own(s, g)
		f.Import = &own
	}
	return f
}

// invisible is a guest that exists but that the token may not look at.
func (c *vmCheck) invisible(s slot) gate.Foreign {
	return gate.Foreign{
		What: fmt.Sprintf("VM %d, which exists but is invisible to this API token", s.id),
		Ways: append(otherID(s), fmt.Sprintf("give the token VM.Audit on /vms/%d to see what it is", s.id)),
	}
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
