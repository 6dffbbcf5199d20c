package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// lacksMachines reports whether a preflight vm_ids with these values checks a machine that is none of known.
func lacksMachines(v gate.Values, known []gate.Known) bool {
	recorded, lacking := recordedIDs(v, known)
	return len(lacking) > 0 || len(recorded) == 0
}

// recordedIDs returns the ids of the known machines, and in ascending order those that the values name beside
// them. An address without an id, such as that of a change in flight, stands for the id of its key.
func recordedIDs(v gate.Values, known []gate.Known) (recorded map[int]bool, lacking []int) {
	recorded = map[int]bool{}
	for _, k := range known {
		id, _ := strconv.Atoi(k.MachineID.ID) //nolint:errcheck // then it is 0
		if id = cmp.Or(values.MachineOf(k).VM, id); id != 0 {
			recorded[id] = true
		}
	}
	ids := map[string]int{}
	_ = v.Decode("vm_ids", &ids) //nolint:errcheck // its type is checked
	resource := cmp.Or(v.String("resource"), defaultResource)
	for _, key := range slices.Sorted(maps.Keys(ids)) {
		address := fmt.Sprintf("%s[%q]", resource, key)
		if slices.ContainsFunc(known, func(k gate.Known) bool { return k.Address == address }) {
			recorded[ids[key]] = true
		}
	}
	lacking = xslices.Filter(slices.Sorted(maps.Values(ids)), func(id int) bool { return !recorded[id] })
	return recorded, lacking
}

// FileUser returns a guest that may use a file and is none of own, the machines of the state that made the
// file; empty if there is none that the token can see. That is one of a cluster of the same name, whose files
// have the same names, and one whose configuration names the file.
func (c *Client) FileUser(ctx context.Context, cluster, volume string, own []platform.Object) (string,
	error) {
	all, err := c.Guests(ctx)
	if err != nil {
		return "", err
	}
	for _, g := range all {
		namesake := g.isVM() && Ownership{Cluster: cluster}.foreign(g) == ""
		if !namesake && values.ContentOf(volume) == "import" {
			continue // it was copied to the disk, so no configuration names it
		}
		g, err = c.configured(ctx, g)
		same := func(m platform.Object) bool {
			same, proved := g.matches(m)
			return m.Kind == platform.Machine && m.VM == g.ID && same && proved
		}
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case KindOf(err) == Missing:
		case err != nil:
			return g.String() + ", which cannot be read", nil
		case !slices.ContainsFunc(own, same) && (namesake || g.Config.Uses(volume)):
			return g.describe(), nil
		}
	}
	return "", nil
}

// recordedUUIDs are the ids of the known machines, by uuid.
func recordedUUIDs(known []gate.Known) map[string]int {
	all := map[string]int{}
	for _, k := range known {
		id, _ := strconv.Atoi(k.MachineID.ID) //nolint:errcheck // then it is 0
		m := values.MachineOf(k)
		if uuid := cmp.Or(m.UUID, k.MachineID.UUID); uuid != "" {
			all[uuid] = cmp.Or(m.VM, id)
		}
	}
	return all
}

// together calls do for 0 to n-1, some at once.
func together(n int, do func(int)) {
	slots, all := make(chan struct{}, 8), sync.WaitGroup{}
	for i := range n {
		slots <- struct{}{}
		all.Go(func() { do(i); <-slots })
	}
	all.Wait()
}

// UnrecordedMachines lists the virtual machines that a nuke would delete as this cluster's, or that have the
// uuid of a known one, such as a restored backup, and that are none of the known resources. unseen are ids
// among the values' that are taken by a guest which the token may not see, or whose name its node does not
// tell: nobody can say whose those are.
func (c *Client) UnrecordedMachines(ctx context.Context, cluster string, v gate.Values, known []gate.Known) (
	machines []Guest, unseen []int, err error) {
	all, err := c.Guests(ctx)
	if err != nil {
		return nil, nil, err
	}
	recorded, lacking := recordedIDs(v, known)
	listed := map[int]bool{}
	for _, g := range all {
		if g.isVM() && !recorded[g.ID] {
			machines = append(machines, g)
		}
		listed[g.ID] = g.Name != "" && g.Name != fmt.Sprintf("VM %d", g.ID)
	}
	uuids := recordedUUIDs(known)
	if len(uuids) > 0 {
		together(len(machines), func(i int) {
			if g, err := c.configured(ctx, machines[i]); err == nil {
				machines[i] = g
			}
		})
	}
	machines = slices.DeleteFunc(machines, func(g Guest) bool {
		return uuids[g.UUID()] == 0 && Ownership{Cluster: cluster}.foreign(g) != ""
	})
	slices.SortFunc(machines, func(a, b Guest) int { return a.ID - b.ID })
	for _, id := range lacking {
		taken := false
		if !listed[id] {
			if taken, err = c.Taken(ctx, id); err != nil {
				return nil, nil, err
			}
		}
		if taken {
			unseen = append(unseen, id)
		}
	}
	return machines, unseen, nil
}
