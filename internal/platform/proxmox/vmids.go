package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/gen/xslices"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// vmCheck is a preflight vm_ids with its arguments.
type vmCheck struct {
	client   *Client
	resource string         // proxmox_virtual_environment_vm.node
	ids      map[string]int // by key
	names    map[string]string
	tags     []string
	derives  bool                // the module derives the uuids from the cluster's key
	key      string              // that key; unknown, if empty
	pool     string              // of every machine; none, if empty
	node     string              // of every machine; any, if empty
	nodes    map[string]string   // by key, where it is another
	interval time.Duration       // between reads of a guest that is being created
	timeout  time.Duration       // of waiting for such a guest
	uses     map[string]host.Use // by key
}

// slot is one id to check: one that the stage wants, one that its state knows, or both.
type slot struct {
	id    int
	known *gate.Known // the instance in the state that has this id
	// The others are of the machine in vm_ids; empty if only the state knows the id.
	key     string
	address string // proxmox_virtual_environment_vm.node["cp-01"]
	name    string
	node    string // empty if it may be any
	// elsewhere is the instance in the state at the address, if it has another id.
	elsewhere *gate.Known
	// recorded is the machine that belongs here: the one that castle has recorded for the address and this
	// id, or one that is to be made by the key. It has no uuid if neither is known.
	recorded platform.Object
}

// slots lists every id that matters, in ascending order.
func (c *vmCheck) slots(known []gate.Known) []slot {
	byID := map[int]slot{}
	byAddress := map[string]*gate.Known{}
	recorded := map[string]gate.MachineID{}
	for i, k := range known {
		recorded[k.Address] = k.MachineID
		if id := values.MachineOf(k).VM; id != 0 && strings.HasPrefix(k.Address, c.resource+"[") {
			byID[id] = slot{id: id, known: &known[i]}
			byAddress[k.Address] = &known[i]
		}
	}
	for key, id := range c.ids {
		s := slot{id: id, known: byID[id].known, key: key, name: cmp.Or(c.names[key], key),
			address: c.resource + "[" + strconv.Quote(key) + "]", node: cmp.Or(c.nodes[key], c.node)}
		if k := byAddress[s.address]; k != s.known {
			s.elsewhere = k
		}
		if m := recorded[s.address]; m.ID == strconv.Itoa(id) {
			s.recorded = platform.Object{Kind: platform.Machine, VM: id, UUID: m.UUID, Was: m.Replaces}
		}
		derives := c.derives && c.key != "" && s.known == nil // one in the state may have been imported
		if s.recorded.UUID == "" && derives {
			s.recorded = platform.Object{Kind: platform.Machine, VM: id, UUID: values.UUIDOf(c.key, s.name)}
		}
		byID[id] = s
	}
	return xslices.Map(slices.Sorted(maps.Keys(byID)), func(id int) slot { return byID[id] })
}

// inspection is one run of the preflight.
type inspection struct {
	check  *vmCheck
	nodes  map[string]string // their statuses
	report func(string)
	found  gate.Inspection
}

func (c *vmCheck) inspect(ctx context.Context, known []gate.Known, report func(string)) (
	found gate.Inspection, err error) {
	n := &inspection{check: c, report: report}
	if n.nodes, err = c.client.Nodes(ctx); err != nil {
		return found, err
	}
	pool, err := c.client.Hosts().PoolProblem(ctx, c.pool)
	if err != nil {
		return found, err
	}
	n.unusable(pool)
	slots := c.slots(known)
	var ids []int
	homes := map[int]string{}
	for _, s := range slots {
		ids = append(ids, s.id)
		if s.known != nil {
			homes[s.id] = cmp.Or(values.MachineOf(*s.known).Node, s.node)
		}
	}
	guests, err := c.client.GuestsOn(ctx, ids, homes)
	if err != nil {
		return found, err
	}
	if err := n.checkUses(ctx, slots, guests); err != nil {
		return n.found, err
	}
	for _, s := range slots {
		if g, exists := guests[s.id]; !exists {
			n.checkNode(s)
		} else if err := n.guest(ctx, s, g); err != nil {
			return n.found, err
		}
	}
	return n.found, nil
}

// unusable adds what no machine can be built on.
func (n *inspection) unusable(problems ...host.Problem) {
	for _, p := range problems {
		if p.What != "" {
			n.found.Unusable = append(n.found.Unusable, gate.Foreign{What: p.What, Fixes: []string{p.Fix}})
		}
	}
}

// checkUses reports what the machines use of nodes that lack it. An image is used once.
func (n *inspection) checkUses(ctx context.Context, slots []slot, guests map[int]Guest) error {
	var uses []host.Use
	for _, s := range slots {
		u, has := n.check.uses[s.key]
		status, exists := n.nodes[s.node]
		if !has || !exists || status == offline {
			continue
		}
		if u.Machine, u.Node = s.key, s.node; s.known != nil || guests[s.id].ID != 0 {
			u.Image, u.Template = "", ""
		}
		uses = append(uses, u)
	}
	problems, err := n.check.client.Hosts().Problems(ctx, uses)
	n.unusable(problems...)
	return err
}

// guest sorts one guest into foreign, ours and known.
func (n *inspection) guest(ctx context.Context, s slot, g Guest) error {
	c := n.check
	foreign := func(f gate.Foreign) error {
		n.found.Foreign = append(n.found.Foreign, f)
		return nil
	}
	switch {
	case g.Hidden:
		return foreign(s.invisible())
	case !g.isVM():
		return foreign(c.foreign(s, g, "a container, not a virtual machine"))
	case n.nodes[g.Node] == offline:
		return foreign(s.unreachable(g))
	}
	g, err := n.settled(ctx, s, g)
	switch {
	case KindOf(err) == Missing:
		return nil // gone since it was listed
	case KindOf(err) == Forbidden:
		return foreign(s.invisible())
	case err != nil:
		return err
	}
	if why := c.difference(s, g); why != "" {
		return foreign(c.foreign(s, g, why))
	}
	if s.known == nil && s.recorded.UUID == "" {
		return foreign(c.unproved(s, g))
	}
	n.checkMoved(s, g)
	n.found.Detached = append(n.found.Detached, c.client.detached(ctx, s, g)...)
	if uuid := g.Config.UUID(); s.known == nil {
		n.found.Ours = append(n.found.Ours, s.untracked(g))
	} else if uuid != "" && (s.recorded.UUID != "" || g.Name == s.name && len(g.missing(c.tags)) == 0) {
		id := gate.MachineID{Address: s.known.Address, ID: strconv.Itoa(s.id), UUID: uuid,
			Node: s.known.MachineID.Node}
		if s.node == "" || s.node == g.Node {
			id.Node = g.Node
		}
		n.found.MachineIDs = append(n.found.MachineIDs, id)
	}
	n.found.Present = append(n.found.Present, g.String())
	return nil
}

// settled reads a guest's configuration. A guest in creation has a lock and neither name nor tags. The task
// outlives the run that started it, so castle waits. A lock without a task stays for ever.
func (n *inspection) settled(ctx context.Context, s slot, listed Guest) (g Guest, err error) {
	c, abandoned := n.check, 0
	report := sync.OnceFunc(func() {
		n.report(fmt.Sprintf("VM %d on node %s is still being created; waiting for it", s.id, listed.Node))
	})
	check := func(ctx context.Context) (bool, error) {
		if g.Lock == "clone" { // at the end, its task moves it to its node
			all, failed := c.client.GuestsOn(ctx, []int{s.id}, nil)
			if err = failed; err == nil && all[s.id].Node != "" {
				listed.Node = all[s.id].Node
			}
		}
		g, err = c.client.configured(ctx, listed)
		if err != nil || !g.unfinished() || s.known != nil || abandoned > 1 {
			return true, err
		}
		tasks, err := c.client.running(ctx, g.Node, 0)
		tasks = slices.DeleteFunc(tasks, func(t task) bool { // that of a clone is one of the template
			return t.ID != strconv.Itoa(s.id) && (g.Lock != "clone" || t.Kind != "qmclone")
		})
		abandoned++ // twice: the lock is set just before the task appears
		if len(tasks) > 0 {
			abandoned = 0
			report()
		}
		return false, err
	}
	err = wait.PollUntilContextTimeout(ctx, c.interval, c.timeout, true, check)
	if wait.Interrupted(err) {
		err = fmt.Errorf("VM %d is still being created: %w", s.id, cmp.Or(context.Cause(ctx), err))
	}
	return g, err
}

// checkMoved reports a machine that somebody, or the high-availability stack, has moved away from the node
// that the configuration names: the provider would delete it, and make an empty one on that node. If the
// configuration is what has changed, the machine is where castle has put it.
func (n *inspection) checkMoved(s slot, g Guest) {
	if s.known == nil || s.node == "" || g.Node == s.node || g.Node == values.Home(*s.known) {
		return
	}
	n.found.Unusable = append(n.found.Unusable, gate.Foreign{
		What: fmt.Sprintf("VM %d %q has moved from node %s to node %s", g.ID, g.Name, values.Home(*s.known),
			g.Node),
		Why: "a create would delete it with its disks, and make an empty machine on node " + s.node,
		Fixes: []string{stay(s.key, g.Node),
			fmt.Sprintf("or migrate it to node %s in Proxmox, and run the same command again", s.node)},
	})
}

// checkNode reports a problem with the node that a machine is to be created on.
func (n *inspection) checkNode(s slot) {
	status, exists := n.nodes[s.node]
	if s.node == "" || exists && status != offline {
		return
	}
	unfit := gate.Foreign{What: fmt.Sprintf("node %s, where %s is to be built, ", s.node, s.key)}
	if exists {
		unfit.What += "is offline"
		unfit.Fixes = []string{"bring it back", "give " + s.key + " another node"}
	} else {
		unfit.What += "does not exist; there is " + strings.Join(sortedKeys(n.nodes), ", ")
		unfit.Fixes = []string{"give " + s.key + " a node that is there"}
	}
	n.found.Unusable = append(n.found.Unusable, unfit)
}

// difference returns why a guest is not the machine that the stage's state has under this id; if it has
// none, why the guest cannot be castle's own. Only a uuid proves that it is: see slot.unproved.
func (c *vmCheck) difference(s slot, g Guest) string {
	missing := g.missing(c.tags)
	if s.known != nil {
		return s.recycled(g, missing)
	}
	switch {
	case g.unfinished():
		return "its creation was never finished"
	case !s.isRecorded(g):
		return "expected the " + otherUUID(s.recorded, g)
	case s.elsewhere != nil:
		return fmt.Sprintf("%s has VM %d in the state", s.address, values.MachineOf(*s.elsewhere).VM)
	case s.recorded.UUID != "": // it may have been renamed or moved since
		return ""
	case g.Name != s.name:
		return fmt.Sprintf("expected the name %q", s.name)
	case len(missing) > 0:
		return "expected the tags " + strings.Join(missing, ", ")
	case s.node != "" && g.Node != s.node:
		return "expected node " + s.node
	}
	return ""
}

// recycled returns why a guest is not the one that the state has under this id. If neither uuid nor hardware
// address proves it, name and tags must match. They may match the state instead of the configuration, which
// may have just changed.
func (s slot) recycled(g Guest, missing []string) string {
	was, tags := values.MachineOf(*s.known), values.ReadAttributes(s.known.Attributes).Tags
	same, proved := g.matches(was)
	switch {
	case proved && same:
		return ""
	case proved && was.UUID != "":
		return "the state knows this id as another machine (" + otherUUID(was, g) + ")"
	case proved:
		return fmt.Sprintf("the state knows this id as another machine (%s)", strings.Join(was.MACs, ", "))
	case g.Name != was.Name && (s.key == "" || g.Name != s.name):
		return fmt.Sprintf("the state knows this id as %q", cmp.Or(was.Name, s.name))
	case len(missing) > 0 && (len(tags) == 0 || len(g.missing(tags)) > 0):
		return "it is no longer tagged " + strings.Join(missing, ", ")
	}
	return ""
}

// isRecorded reports whether a guest is the machine that castle has recorded for the slot, if it has any.
func (s slot) isRecorded(g Guest) bool {
	same, _ := g.matches(s.recorded)
	return s.recorded.UUID == "" || same
}

// otherUUID describes the difference between the uuids of a machine and a guest.
func otherUUID(m platform.Object, g Guest) string {
	if g.Config.UUID() == "" {
		return fmt.Sprintf("uuid %s, and this one has none", m.UUID)
	}
	return fmt.Sprintf("uuid %s, and this one's is %s", m.UUID, g.Config.UUID())
}

// foreign describes a guest that blocks an id, why it is foreign, and fixes; no create removes it.
func (c *vmCheck) foreign(s slot, g Guest, why string) gate.Foreign {
	f := gate.Foreign{What: g.describe(), Why: why}
	if s.known == nil && g.isVM() && g.unfinished() {
		f.Fixes = s.fixes(
			fmt.Sprintf("remove it as root on node %s: qm unlock %d && qm destroy %d", g.Node, g.ID, g.ID))
		return f
	}
	f.Fixes = s.fixes("remove it in Proxmox")
	if s.known != nil {
		f.ConflictsWith = s.known.Address
		return f
	}
	marked := g.Name == s.name || len(g.missing(c.tags)) == 0
	switch {
	case !g.isVM() || s.elsewhere != nil || !marked:
	case s.recorded.UUID != "":
		f.Why += "; it may belong to the same cluster of another state"
		f.Fixes, f.Marked = s.fixes(), true
	default: // it may be the stage's own after all, renamed, moved or without its tags since
		f.Import = new(s.importOf(g))
	}
	return f
}

// untracked is a guest that is ours by its uuid, but not in the state.
func (s slot) untracked(g Guest) gate.Own {
	return gate.Own{Import: s.importOf(g), Running: g.Status == "running", AsForeign: gate.Foreign{
		What: g.describe(), Fixes: s.fixes(),
		Why: "its uuid is that of " + s.key + ", but no run that was killed was making it",
	}}
}

// unproved is a guest that looks like the slot's machine, whose uuid nobody here knows. It may as well belong
// to the same cluster of another state.
func (c *vmCheck) unproved(s slot, g Guest) gate.Foreign {
	f := gate.Foreign{
		What: g.describe(), Fixes: s.fixes(), Unverified: true, Marked: true,
		Why: "its name, tags and node are those of " + s.key + ", but no uuid is known here that proves it " +
			"castle's own",
	}
	if !c.derives { // nothing will ever prove it
		f.Import = new(s.importOf(g))
		return f
	}
	f.Fixes = append(f.Fixes,
		"bring back the state of the stage that made the cluster's keys: the uuid derives from them")
	return f
}

// importOf returns the import that makes a guest the slot's machine.
func (s slot) importOf(g Guest) gate.Import {
	what := fmt.Sprintf("VM %d %q", g.ID, g.Name)
	return gate.Import{Address: s.address, ID: fmt.Sprintf("%s/%d", g.Node, g.ID), What: what}
}

// look reads the one guest that Terraform creates or deletes.
func (c *vmCheck) look(ctx context.Context, known gate.Known) (gate.Reading, error) {
	slots := c.slots([]gate.Known{known})
	i := slices.IndexFunc(slots, func(s slot) bool {
		return s.address == known.Address || s.known != nil && s.known.Address == known.Address
	})
	if i < 0 {
		return gate.Reading{}, nil
	}
	s := slots[i]
	guests, err := c.client.GuestsOn(ctx, []int{s.id}, nil)
	g, exists := guests[s.id]
	switch {
	case err != nil || !exists:
		return gate.Reading{}, err
	case g.Hidden: // a machine gets into its pool at the end of its creation
		return gate.Reading{Foreign: new(s.invisible()), Unsettled: true}, nil
	case !g.isVM():
		return gate.Reading{Foreign: new(c.foreign(s, g, "a container, not a virtual machine"))}, nil
	}
	g, err = c.client.configured(ctx, g)
	switch why := c.difference(s, g); {
	case KindOf(err) == Missing, err == nil && s.known == nil && g.unfinished():
		return gate.Reading{}, nil
	case err != nil:
		return gate.Reading{}, err
	case why != "":
		return gate.Reading{Foreign: new(c.foreign(s, g, why)), Properties: g.Config}, nil
	}
	return gate.Reading{Own: true, Properties: g.Config}, nil
}

// invisible is a guest that exists and that the token may not read.
func (s slot) invisible() gate.Foreign {
	return gate.Foreign{
		What:       fmt.Sprintf("VM %d, which exists but is invisible to this API token", s.id),
		Fixes:      s.fixes(auditFix(s.id)),
		Unverified: s.known != nil,
	}
}

// unreachable is a guest of which only the list's line can be read, since its node is offline.
func (s slot) unreachable(g Guest) gate.Foreign {
	// A list does not always know the names of guests on such a node.
	unnamed := g.Name == "" || g.Name == fmt.Sprintf("VM %d", g.ID)
	return gate.Foreign{
		What:       g.describe(),
		Why:        fmt.Sprintf("node %s is offline, so its owner is unknown", g.Node),
		Fixes:      s.fixes(fmt.Sprintf("bring node %s back", g.Node)),
		Unverified: s.known != nil || unnamed || g.Name == s.name,
	}
}

// fixes adds others to the fix for a machine of the configuration.
func (s slot) fixes(others ...string) []string {
	if s.key == "" {
		return others
	}
	return append([]string{fmt.Sprintf("give %s another VM id", s.key)}, others...)
}
