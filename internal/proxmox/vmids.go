package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// vmCheck is a preflight vm_ids with its arguments.
type vmCheck struct {
	client   *Client
	resource string         // proxmox_virtual_environment_vm.node
	ids      map[string]int // by key
	names    map[string]string
	tags     []string
	node     string            // of every machine; any, if empty
	nodes    map[string]string // by key, where it is another
	interval time.Duration     // between reads of a guest that is being created
	timeout  time.Duration     // of waiting for such a guest
}

// slot is one id to check: one that the stage wants, one that its state knows, or both.
type slot struct {
	id    int
	key   string      // in vm_ids; empty if only the state knows the id
	known *gate.Known // the instance in the state that has this id
	// elsewhere is the instance in the state at this key's address, if it has another id.
	elsewhere *gate.Known
}

// inspection is one run of the preflight.
type inspection struct {
	check  *vmCheck
	nodes  []Node
	report func(string)
	found  gate.Inspection
}

func (c *vmCheck) inspect(
	ctx context.Context, known []gate.Known, report func(string),
) (gate.Inspection, error) {
	n := &inspection{check: c, report: report}
	err := n.run(ctx, c.slots(known))
	return n.found, err
}

func (n *inspection) run(ctx context.Context, slots []slot) (err error) {
	client := n.check.client
	if n.nodes, err = client.Nodes(ctx); err != nil {
		return err
	}
	var ids []int
	for _, s := range slots {
		ids = append(ids, s.id)
	}
	guests, err := client.guestsOn(ctx, ids)
	if err != nil {
		return err
	}
	for _, s := range slots {
		g, exists := guests[s.id]
		switch {
		case !exists:
			n.checkNode(s)
		case g.Hidden:
			n.foreign(invisible(s))
		default:
			if err := n.guest(ctx, s, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// slots lists every id that matters, in ascending order.
func (c *vmCheck) slots(known []gate.Known) []slot {
	byID := map[int]*slot{}
	byAddress := map[string]*gate.Known{}
	for i, k := range known {
		id := attributeInt(k.Attributes["vm_id"])
		if id == 0 || !strings.HasPrefix(k.Address, c.resource+"[") {
			continue
		}
		byID[id] = &slot{id: id, known: &known[i]}
		byAddress[k.Address] = &known[i]
	}
	for key, id := range c.ids {
		s := byID[id]
		if s == nil {
			s = &slot{id: id}
			byID[id] = s
		}
		s.key = key
		if k := byAddress[c.address(key)]; k != nil && k != s.known {
			s.elsewhere = k
		}
	}
	slots := make([]slot, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		slots = append(slots, *byID[id])
	}
	return slots
}

func (c *vmCheck) address(key string) string { return c.resource + "[" + strconv.Quote(key) + "]" }

// name is the name of a key's virtual machine.
func (c *vmCheck) name(key string) string { return cmp.Or(c.names[key], key) }

// nodeOf is the node of a key's virtual machine; empty if it may be any.
func (c *vmCheck) nodeOf(key string) string { return cmp.Or(c.nodes[key], c.node) }

func (n *inspection) foreign(f gate.Foreign) { n.found.Foreign = append(n.found.Foreign, f) }

// guest sorts one guest into foreign, ours and known.
func (n *inspection) guest(ctx context.Context, s slot, listed Guest) error {
	c := n.check
	if !listed.isVM() {
		n.foreign(c.foreign(ctx, s, listed, "a container, not a virtual machine"))
		return nil
	}
	if n.statusOf(listed.Node) == offline {
		n.foreign(c.unreachable(s, listed))
		return nil
	}
	g, err := n.settled(ctx, s, listed)
	switch KindOf(err) {
	case Missing:
		return nil // gone since it was listed
	case Forbidden:
		n.foreign(invisible(s))
		return nil
	}
	if err != nil {
		return err
	}
	why := ""
	if s.known != nil {
		why = c.recycled(s, g)
	} else {
		why = c.notOwn(s, g)
	}
	switch {
	case why != "":
		n.foreign(c.foreign(ctx, s, g, why))
		return nil
	case s.known == nil:
		n.found.Ours = append(n.found.Ours, c.untracked(ctx, s, g))
	case g.Config.uuid() != "":
		mark := gate.MachineID{Address: s.known.Address, ID: strconv.Itoa(s.id), UUID: g.Config.uuid()}
		n.found.MachineIDs = append(n.found.MachineIDs, mark)
	}
	n.found.Present = append(n.found.Present, g.String())
	return nil
}

// settled reads a guest's configuration. A guest in creation has a lock and neither name nor tags. The task
// outlives the run that started it, so castle waits. A lock without a task stays for ever.
func (n *inspection) settled(ctx context.Context, s slot, listed Guest) (Guest, error) {
	client := n.check.client
	ctx, cancel := context.WithTimeout(ctx, n.check.timeout)
	defer cancel()
	reported, abandoned := false, 0
	for {
		config, err := client.Config(ctx, listed.Node, s.id)
		if err != nil {
			return Guest{}, err
		}
		g := listed.with(config)
		if g.Lock != "create" || s.known != nil || abandoned > 1 {
			return g, nil
		}
		tasks, err := client.running(ctx, listed.Node, s.id)
		switch {
		case err != nil:
			return Guest{}, err
		case len(tasks) == 0:
			abandoned++ // twice: the lock is set just before the task appears
		default:
			abandoned = 0
			if !reported {
				reported = true
				n.report(fmt.Sprintf("VM %d on node %s is still being created; waiting for it", s.id,
					listed.Node))
			}
		}
		if err := sleep(ctx, n.check.interval); err != nil {
			return Guest{}, fmt.Errorf("VM %d is still being created: %w", s.id, err)
		}
	}
}

// statusOf is a node's status; empty if there is no such node.
func (n *inspection) statusOf(name string) string {
	i := slices.IndexFunc(n.nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return ""
	}
	return cmp.Or(n.nodes[i].Status, "unknown")
}

// checkNode reports a problem with the node that a machine is to be created on.
func (n *inspection) checkNode(s slot) {
	node := n.check.nodeOf(s.key)
	if s.key == "" || node == "" {
		return
	}
	unfit := gate.Foreign{}
	switch n.statusOf(node) {
	case offline:
		unfit.What = fmt.Sprintf("node %s, where %s is to be built, is offline", node, s.key)
		unfit.Fixes = []string{"bring it back", "give " + s.key + " another node"}
	case "":
		var names []string
		for _, n := range n.nodes {
			names = append(names, n.Name)
		}
		unfit.What = fmt.Sprintf("node %s, where %s is to be built, does not exist; there is %s",
			node, s.key, strings.Join(names, ", "))
		unfit.Fixes = []string{"give " + s.key + " a node that is there"}
	default:
		return
	}
	n.found.Unusable = append(n.found.Unusable, unfit)
}
