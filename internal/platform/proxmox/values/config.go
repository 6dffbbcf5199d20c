package values

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/platform"
)

// Config is a virtual machine's configuration. Options that are numbers in the API are strings here.
type Config map[string]string

// UnmarshalJSON accepts strings and numbers.
func (c *Config) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	err := json.Unmarshal(data, &raw)
	*c = Config{}
	for key, value := range raw {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		(*c)[key] = text
	}
	return err
}

// Revision changes with the options, unlike Proxmox's digest not with pending changes or snapshots.
func (c Config) Revision() string {
	options := maps.Clone(c)
	maps.DeleteFunc(options, func(option, _ string) bool { return option == "digest" || option == "parent" })
	text, _ := json.Marshal(options) //nolint:errcheck // texts alone
	return fmt.Sprintf("%x", sha256.Sum256(text))[:40]
}

// Pending lists the changes that wait until the machine is stopped and started, from the rows of its options.
func Pending(rows []Config) (all []string) {
	for _, row := range rows {
		if row["pending"] != "" || On(row["delete"]) {
			all = append(all, fmt.Sprintf("%s %s → %s", row["key"], cmp.Or(row["value"], "none"),
				cmp.Or(row["pending"], "none")))
		}
	}
	slices.Sort(all)
	return all
}

// On reads a boolean option. Anything unusual counts as set: it can only refuse.
func On(value string) bool { return value != "" && value != "0" && value != "false" }

// MACs are the addresses of the machine's network cards.
func (c Config) MACs() (all []string) {
	cards := c.Cards()
	return xslices.Map(slices.Sorted(maps.Keys(cards)), func(name string) string { return cards[name] })
}

// Cards are the addresses of the machine's network cards in upper case, by option.
func (c Config) Cards() map[string]string {
	all := map[string]string{}
	for i := range 32 {
		name := "net" + strconv.Itoa(i)
		first, _, _ := strings.Cut(c[name], ",")
		if _, mac, ok := strings.Cut(first, "="); ok {
			all[name] = strings.ToUpper(mac)
		}
	}
	return all
}

// UUID is the machine's own for its whole life: Proxmox makes a new one for every machine and every clone.
func (c Config) UUID() string { return strings.ToLower(c.property("smbios1", "uuid")) }

func (c Config) property(option, name string) string {
	for property := range strings.SplitSeq(c[option], ",") {
		if value, ok := strings.CutPrefix(property, name+"="); ok {
			return value
		}
	}
	return ""
}

// Describe adds the network of the machine's address to a fact, with the VLAN that its card is in, and the
// snapshots. An option names the last one of these, whoever has made it.
func (c Config) Describe(f *platform.Fact) {
	address := cmp.Or(c.property("ipconfig0", "ip"), c.property("ipconfig0", "ip6"))
	if prefix, err := netip.ParsePrefix(address); err == nil {
		f.Network = fmt.Sprintf("%s on %s of node %s", prefix.Masked(), c.property("net0", "bridge"), f.Node)
		f.VLAN = cmp.Or(c.property("net0", "tag"), "none")
	}
	if last := c["parent"]; last != "" {
		f.Differ("has snapshots, the last one %q: until they are deleted, Proxmox moves none of its disks "+
			"and may refuse to migrate it; as root on node %s: qm delsnapshot %d %[1]s", last, f.Node, f.ID)
	}
}

var driveOption = regexp.MustCompile(`^(ide|sata|scsi|virtio|efidisk|tpmstate|unused)\d+$`)

// Volumes are those that the machine's drives name, attached or not, in the order of the options' names.
func (c Config) Volumes() []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if volume := c.Volume(key); volume != "" {
			all = append(all, volume)
		}
	}
	return all
}

// Volume is the one that an option names; empty if the option is no drive.
func (c Config) Volume(option string) string {
	volume, _, _ := strings.Cut(strings.TrimPrefix(c[option], "file="), ",")
	if !driveOption.MatchString(option) || !strings.Contains(volume, ":") {
		return ""
	}
	return volume
}

// Disks are the volumes of the attached disks, by option: without CD images and cloud-init drives.
func (c Config) Disks() map[string]string {
	all := map[string]string{}
	for option, value := range c {
		if volume := c.Volume(option); volume != "" && !strings.Contains(value, "media=cdrom") &&
			!strings.HasPrefix(option, "unused") {
			all[option] = volume
		}
	}
	return all
}

// Uses reports whether any option names a volume.
func (c Config) Uses(volume string) bool {
	for _, value := range c {
		for part := range strings.SplitSeq(value, ",") { // cicustom: user=local:snippets/blue.yaml
			if part == volume || strings.HasSuffix(part, "="+volume) {
				return true
			}
		}
	}
	return false
}

// A volume that others are clones of is called base-…; a clone carries its base's name before its own:
// local-zfs:base-9000-disk-0/vm-421-disk-0. On LVM-thin a clone shows nothing; templates are safe.
var baseVolume = regexp.MustCompile(`[:/]base-\d+-`)

// Linked returns the first volume that is a linked clone or the base of one.
func (c Config) Linked() string {
	all := c.Volumes()
	if i := slices.IndexFunc(all, baseVolume.MatchString); i >= 0 {
		return all[i]
	}
	return ""
}
