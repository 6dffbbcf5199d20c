package proxmox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Guest is a virtual machine or container: its line in the cluster's list and, once that was read, its
// configuration, which is newer.
type Guest struct {
	ID         int     `json:"vmid"`
	Kind       string  `json:"type"` // qemu or lxc
	Node       string  `json:"node"`
	Name       string  `json:"name"`
	Status     string  `json:"status"` // running, stopped, unknown
	ListedTags string  `json:"tags"`
	Lock       string  `json:"lock"`
	Pool       string  `json:"pool"`
	HAState    string  `json:"hastate"` // set for a guest that the high-availability stack manages
	Uptime     float64 `json:"uptime"`  // in seconds

	Config     Config `json:"-"` // nil until it was read
	Hidden     bool   `json:"-"` // exists, but the token may not see it: only ID is set
	Unreadable string `json:"-"` // why only the list's line could be read
	HA         bool   `json:"-"` // managed by the high-availability stack
	Replicated bool   `json:"-"` // a replication job copies it
}

// configured reads the guest's configuration, with its pending changes.
func (c *Client) configured(ctx context.Context, g Guest) (Guest, error) {
	config, err := get[Config](ctx, c, g.path()+"/config")
	if err == nil {
		g.Config, g.Name, g.Lock = config, cmp.Or(config["name"], g.Name), config["lock"]
	}
	return g, err
}

// Tags are the guest's tags, in Proxmox's order.
func (g Guest) Tags() []string {
	tags := g.ListedTags
	if g.Config != nil {
		tags = g.Config["tags"]
	}
	return strings.FieldsFunc(tags, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
}

// missing returns the wanted tags that the guest lacks; Proxmox lower-cases tags.
func (g Guest) missing(want []string) []string {
	has := g.Tags()
	return slices.DeleteFunc(slices.Clone(want), func(tag string) bool {
		return slices.ContainsFunc(has, func(h string) bool { return strings.EqualFold(h, tag) })
	})
}

func (g Guest) isVM() bool { return g.Kind == "qemu" }

func (g Guest) path() string { return pathOf("nodes/%s/%s/%d", g.Node, g.Kind, g.ID) }

// matches reports whether the guest is a machine in a state, and whether that is proved: by the uuid, else
// by a hardware address, which a user can choose.
func (g Guest) matches(m Owned) (same, proved bool) {
	uuid, macs := g.Config.uuid(), g.Config.macs()
	switch {
	case m.UUID != "" && uuid != "":
		return m.UUID == uuid, true
	case len(m.MACs) > 0 && len(macs) > 0:
		return slices.ContainsFunc(m.MACs,
			func(mac string) bool { return slices.Contains(macs, strings.ToUpper(mac)) }), true
	}
	return false, false
}

func (g Guest) String() string {
	kind := "VM"
	if !g.isVM() {
		kind = "container"
	}
	if g.Name == "" {
		return fmt.Sprintf("%s %d on node %s", kind, g.ID, g.Node)
	}
	return fmt.Sprintf("%s %d %q on node %s", kind, g.ID, g.Name, g.Node)
}

// describe is a guest in one line: VM 421 "prod-database" on node proxmox, running for 12 days, pool db, no
// tags.
func (g Guest) describe() string {
	parts := []string{g.String(), cmp.Or(strings.TrimPrefix(g.Status, "unknown"), "state unknown")}
	if d := age(time.Duration(g.Uptime) * time.Second); d != "" && g.Status == "running" {
		parts[1] += " for " + d
	}
	if g.Pool != "" {
		parts = append(parts, "pool "+g.Pool)
	}
	tags := "no tags"
	if all := g.Tags(); len(all) > 0 {
		tags = "tags: " + strings.Join(all, ", ")
	}
	reasons, _ := g.blocked()
	return strings.Join(append(append(parts, tags), reasons...), ", ")
}

// age is a duration in its largest unit; empty if it is less than a minute.
func age(d time.Duration) string {
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

// blocked returns why Proxmox would not delete the machine, and how it can be deleted again. No API token can
// remove a lock, only root on its node. A machine that is suspended to disk has a lock and can be deleted.
func (g Guest) blocked() (reasons, fixes []string) {
	if g.Lock != "" {
		reasons = append(reasons, "locked ("+g.Lock+")")
	}
	if g.Lock != "" && g.Lock != "suspended" {
		fixes = append(fixes,
			fmt.Sprintf("when what has locked it (%s) has ended, run the same command again; "+
				"if nothing is going on any more, as root on node %s: qm unlock %d", g.Lock, g.Node, g.ID))
	}
	if on(g.Config["protection"]) {
		reasons = append(reasons, "protected")
		fixes = append(fixes, fmt.Sprintf("its owner may take the protection away in Proxmox (Options), "+
			"or as root on node %s: qm set %d --protection 0", g.Node, g.ID))
	}
	return reasons, fixes
}

// Survey reads every guest in a range, in the order of their ids, with everything that Ownership needs. An
// unanswered question about one guest is in its Unreadable; any other is an error.
func (c *Client) Survey(ctx context.Context, r Range) ([]Guest, error) {
	var ids []int
	for id := r.From; id <= r.To; id++ {
		ids = append(ids, id)
	}
	found, err := c.guestsOn(ctx, ids)
	if err != nil {
		return nil, err
	}
	replicated, err := replicated(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []Guest
	for _, id := range slices.Sorted(maps.Keys(found)) {
		var err error
		g := found[id]
		g.HA, g.Replicated = g.HAState != "", replicated[strconv.Itoa(id)]
		if g.isVM() { // the list is a little old
			if g, err = c.configured(ctx, g); err == nil {
				err = c.refresh(ctx, &g)
			}
		}
		switch KindOf(err) {
		case Missing: // gone since it was listed
			continue
		case Unreachable:
			g.Unreadable = fmt.Sprintf("node %s does not answer (%v)", g.Node, errors.Unwrap(err))
		case Forbidden:
			g.Unreadable = "its configuration may not be read (VM.Audit)"
		default:
			if err != nil {
				return nil, err
			}
		}
		all = append(all, g)
	}
	return all, nil
}

// guestsOn returns the guests with these ids. It reads the taken ids before the list, so that guests that
// the list hides are found.
func (c *Client) guestsOn(ctx context.Context, ids []int) (map[int]Guest, error) {
	found := map[int]Guest{}
	for _, id := range ids {
		if taken, err := c.Taken(ctx, id); err != nil {
			return nil, err
		} else if taken {
			found[id] = Guest{ID: id, Hidden: true}
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	listed, err := c.Guests(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range listed {
		if slices.Contains(ids, g.ID) {
			found[g.ID] = g
		}
	}
	for id, g := range found {
		if !g.Hidden {
			continue
		}
		if still, err := c.Taken(ctx, id); err != nil {
			return nil, err
		} else if !still { // it has gone since the first request
			delete(found, id)
		}
	}
	return found, nil
}

// refresh reads whether the guest runs and whether it is highly available.
func (c *Client) refresh(ctx context.Context, g *Guest) error {
	now, err := get[struct {
		Status string `json:"status"`
		HA     struct {
			Managed any `json:"managed"` // a number, or a boolean, or a string of one
		} `json:"ha"`
	}](ctx, c, g.path()+"/status/current")
	if err != nil {
		return err
	}
	g.Status = now.Status
	g.HA = g.HA || now.HA.Managed != nil && on(fmt.Sprint(now.HA.Managed))
	return nil
}

// replicated holds the ids of the guests that a replication job exists for.
func replicated(ctx context.Context, c *Client) (map[string]bool, error) {
	jobs, err := get[[]struct {
		Guest json.Number `json:"guest"`
		ID    string      `json:"id"` // 421-0
	}](ctx, c, "cluster/replication")
	all := map[string]bool{}
	for _, j := range jobs {
		guest, _, _ := strings.Cut(j.ID, "-")
		all[guest], all[j.Guest.String()] = true, true
	}
	return all, err
}

// auditFix is the fix for a guest that the token may not see.
func auditFix(id int) string {
	return fmt.Sprintf("give the token VM.Audit on /vms/%d to see what it is", id)
}

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

// on reads a boolean option. Anything unusual counts as set: it can only refuse.
func on(value string) bool { return value != "" && value != "0" && value != "false" }

// macs are the addresses of the machine's network cards, in upper case.
func (c Config) macs() []string {
	var all []string
	for i := range 32 {
		first, _, _ := strings.Cut(c["net"+strconv.Itoa(i)], ",")
		if _, mac, ok := strings.Cut(first, "="); ok {
			all = append(all, strings.ToUpper(mac))
		}
	}
	return all
}

// uuid is the machine's own for its whole life: Proxmox makes a new one for every machine and every clone.
func (c Config) uuid() string {
	for property := range strings.SplitSeq(c["smbios1"], ",") {
		if uuid, ok := strings.CutPrefix(property, "uuid="); ok {
			return strings.ToLower(uuid)
		}
	}
	return ""
}

var driveOption = regexp.MustCompile(`^(ide|sata|scsi|virtio|efidisk|tpmstate|unused)\d+$`)

// volumes are those that the machine's drives name, attached or not, in the order of the options' names.
func (c Config) volumes() []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		volume, _, _ := strings.Cut(strings.TrimPrefix(c[key], "file="), ",")
		if driveOption.MatchString(key) && strings.Contains(volume, ":") {
			all = append(all, volume)
		}
	}
	return all
}

// uses reports whether any option names a volume.
func (c Config) uses(volume string) bool {
	for _, value := range c {
		if first, _, _ := strings.Cut(value, ","); first == volume {
			return true
		}
	}
	return false
}

// A volume that others are clones of is called base-…; a clone carries its base's name before its own:
// local-zfs:base-9000-disk-0/vm-421-disk-0. On LVM-thin a clone shows nothing, and its base is safe as the
// template that it is.
var baseVolume = regexp.MustCompile(`[:/]base-\d+-`)

// linked returns the first volume that is a linked clone or the base of one.
func (c Config) linked() string {
	all := c.volumes()
	if i := slices.IndexFunc(all, baseVolume.MatchString); i >= 0 {
		return all[i]
	}
	return ""
}
