package proxmox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
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

func (g Guest) Key() string {
	known := g.Kind == "qemu" || g.Kind == "lxc"
	return textIf(g.ID >= 100 && known && g.Node != "", "guest "+strconv.Itoa(g.ID))
}

// unfinished reports whether the guest is being created, or was when its task ended too early.
func (g Guest) unfinished() bool { return g.Lock == "create" || g.Lock == "clone" }

// configured reads the guest's configuration, with its pending changes. An error is Missing only if the id is
// free as well: a guest that moves to another node is missing on its old one.
func (c *Client) configured(ctx context.Context, g Guest) (Guest, error) {
	config, err := get(ctx, c, g.path()+"/config", func(config Config) string {
		return textIf(config["digest"] == "", "a configuration without a digest")
	})
	if KindOf(err) == Missing {
		if taken, unanswered := c.Taken(ctx, g.ID); unanswered != nil {
			err = unanswered
		} else if taken {
			err = fmt.Errorf("proxmox: the answers disagree: node %s does not have %s, and cluster/nextid "+
				"has its id as taken; it may be moving to another node", g.Node, g)
		}
	}
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

func (g Guest) path() string { return session.Path("nodes/%s/%s/%d", g.Node, g.Kind, g.ID) }

// matches reports whether the guest is a machine in a state, and whether that is proved: by the uuid, else
// by a hardware address, which a user can choose. Proxmox gives a clone a uuid of its own until the
// provider's next request, and the description of the first one, which has the machine's.
func (g Guest) matches(m platform.Object) (same, proved bool) {
	uuid, macs := g.Config.UUID(), g.Config.MACs()
	switch {
	case m.UUID != "" && g.Config != nil: // one without any is another machine, too
		clone := strings.Contains(g.Config["description"], m.UUID)
		return uuid == m.UUID || m.Was != "" && uuid == m.Was || clone, true
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

// describe is a guest in one line: VM 421 "prod-database" on node proxmox, running for 12 days, no tags.
func (g Guest) describe() string {
	parts := []string{g.String(), g.State()}
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

// State tells whether the guest runs, and for how long.
func (g Guest) State() string {
	if d := time.Duration(g.Uptime) * time.Second; d >= time.Minute && g.Status == "running" {
		return "running for " + duration.HumanDuration(d)
	}
	return cmp.Or(strings.TrimPrefix(g.Status, "unknown"), "state unknown")
}

// UUID is the machine's own; empty if it has none, or if its configuration was not read.
func (g Guest) UUID() string { return g.Config.UUID() }

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
	if values.On(g.Config["protection"]) {
		reasons = append(reasons, "protected")
		fixes = append(fixes, fmt.Sprintf("its owner may take the protection away in Proxmox (Options), "+
			"or as root on node %s: qm set %d --protection 0", g.Node, g.ID))
	}
	return reasons, fixes
}

// Survey reads every guest in a range, in the order of their ids, with everything that Ownership needs. An
// unanswered question about one guest is in its Unreadable; others are errors. known are those of states.
func (c *Client) Survey(ctx context.Context, r platform.Range, known []platform.RecordedMachine) ([]Guest,
	error) {
	homes := map[int]string{}
	for _, k := range known {
		homes[k.Machine.VM] = k.Machine.Node
	}
	found, err := c.GuestsOn(ctx, r.IDs(), homes)
	if err != nil || len(found) == 0 {
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

// GuestsOn returns the guests with these ids; the other ids are free. Proxmox filters its list, so an id
// counts as taken if cluster/nextid says so. It counts as free only if all agree that can know:
// cluster/nextid, the list, and the node of a machine that a state knows (homes, by id). If they do not,
// the result is an error.
func (c *Client) GuestsOn(ctx context.Context, ids []int, homes map[int]string) (map[int]Guest, error) {
	taken := map[int]bool{}
	for _, id := range ids {
		var err error
		if taken[id], err = c.Taken(ctx, id); err != nil {
			return nil, err
		}
	}
	all, err := c.Guests(ctx)
	if err != nil {
		return nil, err
	}
	found := map[int]Guest{}
	for _, g := range all {
		if slices.Contains(ids, g.ID) {
			found[g.ID] = g
		}
	}
	for _, id := range ids {
		g, listed := found[id]
		if listed != taken[id] { // it was made or removed since the first request, or is hidden
			taken[id], err = c.Taken(ctx, id)
		}
		switch {
		case err != nil:
		case listed && !taken[id]:
			err = fmt.Errorf("proxmox: the answers disagree: cluster/nextid has id %d as free, and "+
				"cluster/resources has %s", id, g)
		case taken[id] && !listed:
			found[id] = Guest{ID: id, Hidden: true}
		case !listed:
			err = c.checkFree(ctx, id, homes[id])
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// checkFree asks the node of a machine that a state knows whether the machine is there, although its id is
// free. A refusal is no evidence: Proxmox checks the permission first, and that of a pool goes with its
// machine. Neither is a node that does not answer or has left the cluster: every node knows all ids.
func (c *Client) checkFree(ctx context.Context, id int, node string) error {
	if node == "" {
		return nil
	}
	nodes, err := c.Nodes(ctx)
	if err != nil || nodes[node] == "" || nodes[node] == offline {
		return err
	}
	g, err := c.configured(ctx, Guest{ID: id, Kind: "qemu", Node: node})
	switch KindOf(err) {
	case Missing, Forbidden, Unreachable:
		return nil
	}
	if err == nil {
		err = fmt.Errorf("proxmox: the answers disagree: cluster/nextid has id %d as free, "+
			"cluster/resources does not list it, and node %s has %s", id, node, g)
	}
	return err
}

// refresh reads whether the guest runs and whether it is highly available.
func (c *Client) refresh(ctx context.Context, g *Guest) error {
	type status struct {
		Status string  `json:"status"`
		Uptime float64 `json:"uptime"`
		HA     struct {
			Managed any `json:"managed"` // a number, or a boolean, or a string of one
		} `json:"ha"`
	}
	now, err := get(ctx, c, g.path()+"/status/current", func(now status) string {
		return textIf(now.Status == "", "no status")
	})
	if err != nil {
		return err
	}
	g.Status, g.Uptime = now.Status, now.Uptime
	g.HA = g.HA || now.HA.Managed != nil && values.On(fmt.Sprint(now.HA.Managed))
	return nil
}

type replicationJob struct {
	Guest json.Number `json:"guest"`
	ID    string      `json:"id"` // 421-0
}

func (j replicationJob) Key() string { return j.ID }

// replicated holds the ids of the guests that a replication job exists for.
func replicated(ctx context.Context, c *Client) (map[string]bool, error) {
	jobs, err := list[replicationJob](ctx, c, "cluster/replication")
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
