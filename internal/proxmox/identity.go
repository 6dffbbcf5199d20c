package proxmox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// notOurs says why a guest that the state does not know cannot be castle's own.
func (c *vmCheck) notOurs(s slot, g guest) string {
	missing, node := lacking(g.tags, c.tags), cmp.Or(c.nodes[s.key], c.node)
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
		return fmt.Sprintf("%s has VM %d in the state", s.elsewhere.Address, attributeInt(s.elsewhere.Attributes["vm_id"]))
	}
	return ""
}

// recycled says why a guest is not the one that the state knows by this id. Its
// uuid decides, if castle has seen the machine and kept it: Proxmox makes up a new
// one for every machine. Then the hardware address, which can be chosen. Where
// the state has neither, name and tags must be the expected ones, or those in the
// state if the configuration has just changed.
func (c *vmCheck) recycled(s slot, g guest) string {
	if was := uuidOf(s.known, s.id); was != "" && g.uuid != "" {
		if was == g.uuid {
			return ""
		}
		return fmt.Sprintf("the state knows this id as another machine (uuid %s, and this one's is %s)", was, g.uuid)
	}
	if macs := attributeStrings(s.known.Attributes["mac_addresses"]); len(macs) > 0 && len(g.macs) > 0 {
		for _, mac := range macs {
			if slices.Contains(g.macs, strings.ToUpper(mac)) {
				return ""
			}
		}
		return fmt.Sprintf("the state knows this id as another machine (%s)", strings.Join(macs, ", "))
	}
	was, _ := s.known.Attributes["name"].(string) //nolint:errcheck // absent is empty
	if g.Name != was && (s.key == "" || g.Name != c.name(s.key)) {
		return fmt.Sprintf("the state knows this id as %q", cmp.Or(was, c.name(s.key)))
	}
	then := attributeStrings(s.known.Attributes["tags"])
	if missing := lacking(g.tags, c.tags); len(missing) > 0 && (len(then) == 0 || len(lacking(g.tags, then)) > 0) {
		return fmt.Sprintf("it is no longer tagged %s", strings.Join(missing, ", "))
	}
	return ""
}

// uuidOf is the uuid of the machine that a resource stands for. The provider keeps
// none in its state unless the configuration has one.
func uuidOf(known *gate.Known, id int) string {
	if known.MachineID.ID == strconv.Itoa(id) && known.MachineID.UUID != "" {
		return known.MachineID.UUID
	}
	blocks, _ := known.Attributes["smbios"].([]any) //nolint:errcheck // anything else counts as none
	for _, block := range blocks {
		if smbios, ok := block.(map[string]any); ok {
			uuid, _ := smbios["uuid"].(string) //nolint:errcheck // likewise
			return strings.ToLower(uuid)
		}
	}
	return ""
}

// lacking returns the wanted tags that are not there; Proxmox lower-cases tags.
func lacking(have, want []string) []string {
	var missing []string
	for _, tag := range want {
		if !slices.ContainsFunc(have, func(h string) bool { return strings.EqualFold(h, tag) }) {
			missing = append(missing, tag)
		}
	}
	return missing
}
