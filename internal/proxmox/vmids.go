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
	interval time.Duration     // between looks at a guest that is being made
	patience time.Duration     // with such a guest
}

// slot is one id to look at: one that the stage wants, one that its state
// knows, or both.
type slot struct {
	id    int
	key   string      // in vm_ids; empty if only the state knows the id
	known *gate.Known // the instance in the state that has this id
	// elsewhere is the instance in the state at this key's address, if it has
	// another id.
	elsewhere *gate.Known
}

// guest is a guest with what its configuration says; that is newer than the list.
type guest struct {
	Guest
	tags, macs []string
	uuid       string
	protected  bool
}

// complete adds what a configuration says to what the list has said.
func (g guest) complete(c Config) guest {
	g.tags, g.macs, g.uuid, g.protected = c.Tags(), c.MACs(), c.UUID(), on(c["protection"])
	g.Name, g.Lock = cmp.Or(c["name"], g.Name), c["lock"]
	return g
}

// site is what one look at the datacenter goes by.
type site struct {
	nodes  []Node
	guests []Guest
	report func(string)
	found  *gate.Inspection
}

func (c *vmCheck) inspect(ctx context.Context, known []gate.Known, report func(string)) (gate.Inspection, error) {
	var found gate.Inspection
	var err error
	at := site{report: report, found: &found}
	if at.nodes, err = c.client.Nodes(ctx); err != nil {
		return found, err
	}
	slots := c.slots(known)
	// First which ids are taken, then the list: what appears in between is seen
	// by the list at least, and what disappears is asked for again.
	var taken []slot
	for _, s := range slots {
		yes, err := c.client.Taken(ctx, s.id)
		switch {
		case err != nil:
			return found, err
		case yes:
			taken = append(taken, s)
		default:
			c.ground(s, at)
		}
	}
	if len(taken) == 0 {
		return found, nil
	}
	if at.guests, err = c.client.Guests(ctx); err != nil {
		return found, err
	}
	for _, s := range taken {
		i := slices.IndexFunc(at.guests, func(g Guest) bool { return g.ID == s.id })
		if i < 0 {
			if still, err := c.client.Taken(ctx, s.id); err != nil || !still {
				if err != nil {
					return found, err
				}
				continue
			}
			found.Foreign = append(found.Foreign, c.invisible(s))
			continue
		}
		if err := c.judge(ctx, s, at.guests[i], at); err != nil {
			return found, err
		}
	}
	return found, nil
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

// name is what the virtual machine of a key is called.
func (c *vmCheck) name(key string) string { return cmp.Or(c.names[key], key) }

// judge sorts one guest into foreign, ours and known.
func (c *vmCheck) judge(ctx context.Context, s slot, listed Guest, at site) error {
	found := at.found
	if listed.Kind != "qemu" {
		found.Foreign = append(found.Foreign, c.foreign(ctx, s, listed.seen(), "a container, not a virtual machine"))
		return nil
	}
	if statusOf(at.nodes, listed.Node) == offline {
		found.Foreign = append(found.Foreign, c.unreachable(s, listed.seen()))
		return nil
	}
	g, err := c.settled(ctx, s, listed, at.report)
	switch {
	case IsMissing(err):
		return nil // gone since it was listed
	case IsForbidden(err):
		found.Foreign = append(found.Foreign, c.invisible(s))
		return nil
	case err != nil:
		return err
	}
	if s.known != nil {
		if why := c.recycled(s, g); why != "" {
			found.Foreign = append(found.Foreign, c.foreign(ctx, s, g, why))
			return nil
		}
		found.Present = append(found.Present, g.String())
		if g.uuid != "" {
			found.MachineIDs = append(found.MachineIDs, gate.MachineID{Address: s.known.Address, ID: strconv.Itoa(s.id), UUID: g.uuid})
		}
		return nil
	}
	if why := c.notOurs(s, g); why != "" {
		found.Foreign = append(found.Foreign, c.foreign(ctx, s, g, why))
		return nil
	}
	found.Present = append(found.Present, g.String())
	found.Ours = append(found.Ours, c.unclaimed(ctx, s, g))
	return nil
}

// settled reads a guest's configuration. While a guest is being made it is
// locked and has neither name nor tags; the task that makes it outlives the run
// that asked for it, so waiting is all it takes. A lock that no task holds any
// more will never go away by itself.
func (c *vmCheck) settled(ctx context.Context, s slot, listed Guest, report func(string)) (guest, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	told, abandoned := false, 0
	for {
		config, err := c.client.Config(ctx, listed.Node, s.id)
		if err != nil {
			return guest{}, err
		}
		g := guest{Guest: listed}.complete(config)
		if g.Lock != "create" || s.known != nil || abandoned > 1 {
			return g, nil
		}
		busy, err := c.client.Busy(ctx, listed.Node, s.id)
		switch {
		case err != nil:
			return guest{}, err
		case busy:
			if !told {
				told = true
				report(fmt.Sprintf("VM %d on node %s is still being created; waiting for it", s.id, listed.Node))
			}
			abandoned = 0
		default:
			abandoned++ // twice: the lock is set just before the task appears
		}
		if err := sleep(ctx, c.interval); err != nil {
			return guest{}, fmt.Errorf("VM %d is still being created: %w", s.id, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
