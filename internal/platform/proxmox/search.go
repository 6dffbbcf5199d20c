package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// Search checks whether owned objects are gone. The provider does not wait for every task that it starts: it
// reports an image as deleted whose deletion has only begun. So a Search waits for tasks that work on objects
// that exist. A list of which the token sees a part, or a node that does not answer, proves nothing.
type Search struct {
	Client   *Client
	Interval time.Duration // between two looks; a second, if 0
	Timeout  time.Duration // of waiting for tasks; ten minutes, if 0
}

// Gone checks each object, and each other disk with the id of a machine among them. It reports each reason
// to wait once. The error is that of a context that has ended.
func (s Search) Gone(ctx context.Context, all []platform.Object, report func(string)) ([]event.OwnedObject,
	error) {
	interval, timeout := cmp.Or(s.Interval, time.Second), cmp.Or(s.Timeout, 10*time.Minute)
	var objects []event.OwnedObject
	var busy map[int]task
	reported := false
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(context.Context) (bool, error) {
		v := newInventory(ctx, s.Client)
		tasks := v.tasks(ctx) // before the check: one that ends before it has had its effect
		objects = v.check(ctx, all)
		busy = v.busy(tasks)
		for _, i := range slices.Sorted(maps.Keys(busy)) {
			if !reported {
				report(fmt.Sprintf("%s %s: Proxmox' task %s is still running; waiting for it",
					objects[i].Kind, objects[i].ID, busy[i].Kind))
			}
		}
		reported = reported || len(busy) > 0
		return len(busy) == 0, ctx.Err()
	})
	if ctx.Err() != nil {
		return objects, context.Cause(ctx)
	}
	if err != nil { // the timeout
		for i, task := range busy {
			reason := fmt.Sprintf("Proxmox' task %s is still running after %s", task.Kind, timeout)
			objects[i].Gone, objects[i].Reason = false, reason
		}
	}
	return objects, nil
}

// Now is Gone without waiting for tasks.
func (s Search) Now(ctx context.Context, all []platform.Object) []event.OwnedObject {
	return newInventory(ctx, s.Client).check(ctx, all)
}

// Complete adds the disks with the ids of the machines among all that the token can see now: cloud-init
// drives are in no state. What has moved to another node since it was recorded is there.
func (s Search) Complete(ctx context.Context, all []platform.Object) []platform.Object {
	v := newInventory(ctx, s.Client)
	v.readDisks(ctx, all)
	all = v.relocate(ctx, all)
	for _, d := range v.disks {
		if !slices.ContainsFunc(all, d.is) {
			all = append(all, d.owned)
		}
	}
	return all
}

// relocate returns all with the present nodes of machines that have moved, and of their disks. A disk that is
// on neither node does not exist. This has to be known before the machines are deleted: a token that is
// limited to a pool sees no disks afterwards, and has a proof for the node alone that has deleted a machine.
func (v *inventory) relocate(ctx context.Context, all []platform.Object) (now []platform.Object) {
	guests, err := v.client.Guests(ctx)
	if err != nil {
		return all
	}
	moved := map[int]string{}
	for _, o := range all {
		i := slices.IndexFunc(guests, func(g Guest) bool { return g.isVM() && g.ID == o.VM })
		if o.Kind != platform.Machine || i < 0 || guests[i].Node == o.Node {
			continue
		}
		g, err := v.client.configured(ctx, guests[i])
		if same, proved := g.matches(o); err == nil && (same || !proved) {
			moved[o.VM] = g.Node
		}
	}
	for _, o := range all {
		node, isMoved := moved[o.VM]
		is := func(d foundDisk) bool { return d.owned.VM == o.VM && d.owned.Volume == o.Volume }
		here := func(d foundDisk) bool { return is(d) && (d.shared || d.owned.Node == node) }
		switch {
		case !isMoved:
		case o.Kind == platform.Machine, slices.ContainsFunc(v.disks, here):
			o.Node = node
		case !slices.ContainsFunc(v.disks, is):
			sees, err := seesDisks(ctx, v.client, values.StorageOf(o.Volume), o.VM)
			if err == nil && sees && v.read[o.Node+"/"+values.StorageOf(o.Volume)] {
				continue
			}
		}
		now = append(now, o)
	}
	return now
}

// Blocked lists the machines among all that Proxmox would not delete now, with why and the remedy. Proxmox
// itself reports a lock only in a task that was started, when other machines are gone already.
func (s Search) Blocked(ctx context.Context, all []platform.Object) ([]event.OwnedObject, error) {
	listed, err := s.Client.Guests(ctx)
	if err != nil {
		return nil, err
	}
	var blocked []event.OwnedObject
	for _, o := range all {
		i := slices.IndexFunc(listed, func(g Guest) bool {
			return o.Kind == platform.Machine && g.ID == o.VM && g.isVM()
		})
		if i < 0 {
			continue
		}
		g, err := s.Client.configured(ctx, listed[i])
		if KindOf(err) == Missing {
			continue // gone since it was listed
		} else if err != nil {
			return nil, err
		}
		if reasons, fixes := g.blocked(); len(fixes) > 0 {
			reason := fmt.Sprintf("%q, %s", g.Name, strings.Join(reasons, ", "))
			blocked = append(blocked, event.OwnedObject{Kind: platform.Machine, ID: o.ID(),
				Where:  "node " + g.Node,
				Reason: reason, Fix: strings.Join(fixes, "; ")})
		}
	}
	return blocked, nil
}

// inventory is the result of one search of a datacenter for owned objects.
type inventory struct {
	client  *Client
	err     error             // why the datacenter cannot be read
	nodes   map[string]string // their statuses
	disks   []foundDisk
	read    map[string]bool     // node/storage whose disks are known; /storage if it is shared
	unread  []event.OwnedObject // nodes and storages that could not be read
	others  map[int]Config      // by id: the other guest that has it now
	owned   []platform.Object   // the objects that were looked for
	objects []event.OwnedObject // whether each of them is gone, then unread
}

type foundDisk struct {
	owned  platform.Object
	shared bool
}

func (d foundDisk) is(o platform.Object) bool {
	return o.Kind == platform.Disk && o.Volume == d.owned.Volume && (d.shared || o.Node == d.owned.Node)
}

// remedy is how a disk is removed by hand. On shared storage it may be another Proxmox cluster's, which has
// a machine with this id, too.
func (d foundDisk) remedy() string {
	if d.shared {
		return fmt.Sprintf("unless another Proxmox cluster that shares %s has a machine %d, %s",
			values.StorageOf(d.owned.Volume), d.owned.VM, remedy(d.owned))
	}
	return remedy(d.owned)
}

// remedy is how a volume, or an object of high availability, is removed by hand.
func remedy(o platform.Object) string {
	switch o.Kind {
	case platform.HAResource:
		return "as root on a node: ha-manager remove " + o.Volume
	case platform.HARule:
		return "as root on a node: ha-manager rules remove " + o.Volume
	}
	return fmt.Sprintf("as root on node %s: pvesm free %s", o.Node, o.Volume)
}

func newInventory(ctx context.Context, c *Client) *inventory {
	v := &inventory{client: c, read: map[string]bool{}, others: map[int]Config{}}
	v.nodes, v.err = c.Nodes(ctx)
	return v
}

// tasks lists the running tasks by node. Of a node that does not list its own, nothing is proved.
func (v *inventory) tasks(ctx context.Context) map[string][]task {
	all := map[string][]task{}
	for _, node := range sortedKeys(v.nodes) {
		if v.nodes[node] == offline {
			continue
		}
		var err error
		if all[node], err = v.client.running(ctx, node, 0); err != nil {
			v.cannotRead("node", node, err)
		}
	}
	return all
}

// busy are the indexes of the objects that a task may still change, with that task.
func (v *inventory) busy(tasks map[string][]task) map[int]task {
	found := map[int]task{}
	for i, o := range v.owned {
		for node, running := range tasks {
			for _, task := range running {
				if (o.Node == node || o.Kind == platform.Machine) && task.concerns(o, !v.objects[i].Gone) {
					found[i] = task
				}
			}
		}
	}
	return found
}

// check looks for each object, and for other disks with the ids of machines among them.
func (v *inventory) check(ctx context.Context, all []platform.Object) []event.OwnedObject {
	kinds := []string{platform.Machine, platform.Disk, platform.Image, platform.Snippet, platform.File}
	all = slices.SortedStableFunc(slices.Values(all), func(a, b platform.Object) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
	if v.err != nil {
		for _, o := range all {
			v.add(o, unproved(v.err))
		}
		return v.objects
	}
	for _, o := range all {
		if o.Kind == platform.Machine {
			v.add(o, v.machine(ctx, o))
		}
	}
	v.readDisks(ctx, all)
	v.checkRights(ctx, all)
	for _, o := range all {
		if o.Kind == platform.Disk && !o.Left {
			v.add(o, v.disk(o))
		}
	}
	for _, d := range v.disks { // those that no state names
		if _, taken := v.others[d.owned.VM]; !taken && !slices.ContainsFunc(all, d.is) {
			reason := fmt.Sprintf("it carries the id of machine %d, which did not use it", d.owned.VM)
			v.add(d.owned, event.OwnedObject{Reason: reason, Fix: d.remedy()})
		}
	}
	for _, o := range all {
		if o.IsFile() {
			v.add(o, v.file(ctx, o))
		} else if o.Kind == platform.HAResource || o.Kind == platform.HARule {
			v.add(o, v.available(ctx, o))
		}
	}
	v.objects = append(v.objects, v.unread...)
	return v.objects
}

// add completes what was found out about an object.
func (v *inventory) add(o platform.Object, found event.OwnedObject) {
	found.Kind, found.ID = o.Kind, o.ID()
	if o.Node != "" && found.Where == "" {
		found.Where = "node " + o.Node
	}
	v.owned, v.objects = append(v.owned, o), append(v.objects, found)
}

func unproved(err error) event.OwnedObject {
	return event.OwnedObject{Reason: "not proved: " + err.Error()}
}

// machine looks a machine up by id, which is unique in the cluster, then by its identity if the id is taken.
func (v *inventory) machine(ctx context.Context, o platform.Object) event.OwnedObject {
	guests, err := v.client.GuestsOn(ctx, []int{o.VM}, map[int]string{o.VM: o.Node})
	g, exists := guests[o.VM]
	if err == nil && g.isVM() {
		g, err = v.client.configured(ctx, g)
	}
	same, proved := g.matches(o)
	switch {
	case err != nil:
		return unproved(err)
	case !exists:
		return event.OwnedObject{Gone: true}
	case g.Hidden:
		reason := "a guest that this API token may not see has this id"
		return event.OwnedObject{Reason: reason, Fix: auditFix(o.VM)}
	case !g.isVM():
		v.others[o.VM] = nil // a container's disks have the same names; its configuration is not read
		return event.OwnedObject{Gone: true, Reason: "the id belongs to another guest now: " + g.describe()}
	case proved && !same:
		v.others[o.VM] = g.Config
		return event.OwnedObject{Gone: true, Reason: "the id belongs to another machine now: " + g.describe()}
	}
	found := event.OwnedObject{Where: "node " + g.Node, Reason: "still there: " + g.describe()}
	if _, fixes := g.blocked(); !proved && g.Name != o.Name {
		found.Reason = "not proved: the state had no hardware address to tell it from " + g.describe()
	} else if len(fixes) > 0 {
		found.Fix = strings.Join(fixes, "; ")
	} else {
		found.Fix = fmt.Sprintf("as root on node %s: qm stop %d && qm destroy %d --purge", g.Node, o.VM, o.VM)
	}
	return found
}

// disk goes by the lists that were read; a list that could not be read is reported by itself.
func (v *inventory) disk(o platform.Object) event.OwnedObject {
	other := v.others[o.VM]
	i := slices.IndexFunc(v.disks, func(d foundDisk) bool { return d.is(o) })
	switch exists := i >= 0; {
	case exists && other.Uses(o.Volume):
		reason := fmt.Sprintf("another guest %d has a disk of this name now", o.VM)
		return event.OwnedObject{Gone: true, Reason: reason}
	case exists:
		return event.OwnedObject{Reason: "still there", Fix: v.disks[i].remedy()}
	case len(v.unread) > 0:
		return unproved(errors.New("not everything could be read"))
	}
	return event.OwnedObject{Gone: true}
}

// file looks for an image, a snippet or another file.
func (v *inventory) file(ctx context.Context, o platform.Object) event.OwnedObject {
	volumes, err := v.client.Volumes(ctx, o.Node, values.StorageOf(o.Volume), values.ContentOf(o.Volume), 0)
	if err != nil {
		return unproved(err)
	}
	if _, exists := volumes[o.Volume]; exists {
		return event.OwnedObject{Reason: "still there", Fix: remedy(o)}
	}
	has, err := v.client.rightsOn(ctx, "/storage/"+values.StorageOf(o.Volume))
	switch {
	case err != nil:
		return unproved(err)
	case !has.include("Datastore.Allocate"):
		return unseen("files", values.StorageOf(o.Volume))
	}
	return event.OwnedObject{Gone: true}
}

// unseen is an object, or all of a storage, of which the token may not see everything that matters.
func unseen(what, storage string) event.OwnedObject {
	return event.OwnedObject{
		Reason: "not proved: this API token may not see all " + what + " there",
		Fix:    "give the token Datastore.Allocate on /storage/" + storage,
	}
}

// readDisks reads which disks carry the ids of the machines among all, on every storage of every node.
func (v *inventory) readDisks(ctx context.Context, all []platform.Object) {
	var ids []int
	for _, o := range all {
		if o.Kind == platform.Machine {
			ids = append(ids, o.VM)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	v.client.eachDiskStorage(ctx, v.nodes, func(node string, s host.Storage) error {
		shared := s.Shared == 1
		for _, id := range ids {
			volumes, err := v.client.Volumes(ctx, node, s.ID, "images", id)
			if err != nil {
				return err
			}
			for _, volume := range sortedKeys(volumes) {
				disk := platform.Object{Kind: platform.Disk, Node: node, VM: id, Volume: volume}
				v.disks = append(v.disks, foundDisk{disk, shared})
			}
		}
		if shared {
			node = "" // the same everywhere
		}
		v.read[node+"/"+s.ID] = true
		return nil
	}, v.cannotRead)
}

// checkRights reports storages that have had disks of all and that the token does not see, or only in part.
func (v *inventory) checkRights(ctx context.Context, all []platform.Object) {
	checked := map[string]bool{}
	for _, o := range all {
		storage := values.StorageOf(o.Volume)
		if o.Kind != platform.Disk || checked[storage] {
			continue
		}
		sees, err := seesDisks(ctx, v.client, storage, o.VM)
		if err == nil && !sees {
			proved, failed := freed(ctx, v.client, v.nodeOf(all, o), o.VM)
			if err = failed; proved {
				continue // another machine's disks need a proof of their own
			}
		}
		checked[storage] = true
		switch {
		case err != nil:
			v.cannotRead("storage", storage, err)
		case !sees:
			object := unseen("disks", storage)
			object.Kind, object.ID = "storage", storage
			v.unread = append(v.unread, object)
		case !v.read["/"+storage] && !v.read[o.Node+"/"+storage] && len(v.unread) == 0:
			v.cannotRead("storage", storage+" on node "+o.Node,
				errors.New("the node does not list it for disks"))
		}
	}
}

// nodeOf is the node of a disk, or of its machine on shared storage, which any node may have listed.
func (v *inventory) nodeOf(all []platform.Object, disk platform.Object) string {
	owns := func(o platform.Object) bool { return o.Kind == platform.Machine && o.VM == disk.VM }
	i := slices.IndexFunc(all, owns)
	if i < 0 || !v.read["/"+values.StorageOf(disk.Volume)] {
		return disk.Node
	}
	return all[i].Node
}

func (v *inventory) cannotRead(kind, id string, err error) {
	object := unproved(err)
	object.Kind, object.ID = kind, id
	if slices.ContainsFunc(v.unread, func(o event.OwnedObject) bool { return o.Kind == kind && o.ID == id }) {
		return
	}
	if kind == "node" {
		object.Fix = "run the same command again when it is back; " +
			"one that is gone for good has to leave the Proxmox cluster: pvecm delnode " + id
	}
	v.unread = append(v.unread, object)
}

func sortedKeys[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }
