package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
)

// inventory is the result of one search of a datacenter for owned objects.
type inventory struct {
	client  *Client
	err     error // why the datacenter cannot be read
	nodes   []Node
	disks   []foundDisk
	read    map[string]bool     // node/storage whose disks are known; /storage if it is shared
	unread  []event.OwnedObject // nodes and storages that could not be read
	others  map[int]Config      // by id: the other guest that has it now
	results []result
}

// result is whether an object is gone; owned is zero for a node or a storage.
type result struct {
	object event.OwnedObject
	owned  Owned
}

// proof is whether an object is proved gone, else why not and how to remove it.
type proof struct {
	gone        bool
	reason, fix string
}

func unproved(err error) proof { return proof{reason: notProved(err)} }

func notProved(err error) string { return "not proved: " + err.Error() }

type foundDisk struct {
	owned  Owned
	shared bool
}

func (d foundDisk) is(o Owned) bool {
	return o.Kind == Disk && o.Volume == d.owned.Volume && (d.shared || o.Node == d.owned.Node)
}

// remedy is how a disk is removed by hand. On shared storage it may be another Proxmox cluster's, which has
// a machine with this id, too.
func (d foundDisk) remedy() string {
	if d.shared {
		return fmt.Sprintf("unless another Proxmox cluster that shares %s has a machine %d, %s",
			storageOf(d.owned.Volume), d.owned.VM, d.owned.remedy())
	}
	return d.owned.remedy()
}

// remedy is how a volume is removed by hand.
func (o Owned) remedy() string {
	return fmt.Sprintf("as root on node %s: pvesm free %s", o.Node, o.Volume)
}

// newInventory reads the nodes, and the tasks of those that are online.
func newInventory(ctx context.Context, c *Client) (*inventory, map[string][]task) {
	v := &inventory{client: c, read: map[string]bool{}, others: map[int]Config{}}
	if v.nodes, v.err = c.Nodes(ctx); v.err != nil {
		return v, nil
	}
	all := map[string][]task{}
	for _, node := range v.nodes {
		if node.Status == offline {
			continue
		}
		if tasks, err := c.running(ctx, node.Name, 0); err == nil {
			all[node.Name] = tasks
		}
	}
	return v, all
}

// check looks for each object, and for other disks with the ids of machines among them.
func (v *inventory) check(ctx context.Context, all []Owned) []result {
	kinds := []string{Machine, Disk, Image, Snippet, File}
	all = slices.SortedStableFunc(slices.Values(all), func(a, b Owned) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
	if v.err != nil {
		for _, o := range all {
			v.add(o, unproved(v.err))
		}
		return v.results
	}
	for _, o := range all {
		if o.Kind == Machine {
			node, is := v.machine(ctx, o)
			o.Node = cmp.Or(node, o.Node)
			v.add(o, is)
		}
	}
	v.readDisks(ctx, all)
	v.checkRights(ctx, all)
	for _, o := range all {
		if o.Kind == Disk && !o.Left {
			v.add(o, v.disk(o))
		}
	}
	for _, d := range v.disks { // those that no state names
		if _, taken := v.others[d.owned.VM]; !taken && !slices.ContainsFunc(all, d.is) {
			reason := fmt.Sprintf("it carries the id of machine %d, which did not use it", d.owned.VM)
			v.add(d.owned, proof{reason: reason, fix: d.remedy()})
		}
	}
	for _, o := range all {
		if o.isFile() {
			v.add(o, v.file(ctx, o))
		}
	}
	for _, object := range v.unread {
		v.results = append(v.results, result{object: object})
	}
	return v.results
}

func (v *inventory) add(o Owned, is proof) {
	object := event.OwnedObject{Kind: o.Kind, ID: o.ID(), Gone: is.gone, Reason: is.reason, Fix: is.fix}
	if o.Node != "" {
		object.Where = "node " + o.Node
	}
	v.results = append(v.results, result{object, o})
}

// machine looks a machine up by id, which is unique in the cluster, then by its identity if the id is taken.
// node is the machine's current node.
func (v *inventory) machine(ctx context.Context, o Owned) (node string, is proof) {
	found, err := v.client.guestsOn(ctx, []int{o.VM})
	g, exists := found[o.VM]
	if err != nil || !exists {
		return "", proofOf(true, err)
	}
	if g.Hidden {
		return "", proof{
			reason: "a guest that this API token may not see has this id",
			fix:    auditFix(o.VM),
		}
	}
	if !g.isVM() {
		v.others[o.VM] = nil // a container's disks have the same names; its configuration is not read
		return "", proof{gone: true, reason: "the id belongs to another guest now: " + g.describe()}
	}
	config, err := v.client.Config(ctx, g.Node, o.VM)
	if err != nil {
		return "", unproved(err)
	}
	g = g.with(config)
	same, proved := g.matches(o)
	if proved && !same {
		v.others[o.VM] = config
		return "", proof{gone: true, reason: "the id belongs to another machine now: " + g.describe()}
	}
	if !proved && g.Name != o.Name {
		reason := "not proved: the state had no hardware address to tell it from " + g.describe()
		return g.Node, proof{reason: reason}
	}
	fix := fmt.Sprintf("as root on node %s: qm stop %d && qm destroy %d --purge", g.Node, o.VM, o.VM)
	if _, fixes := g.blocked(); len(fixes) > 0 {
		fix = strings.Join(fixes, "; ")
	}
	return g.Node, proof{reason: "still there: " + g.describe(), fix: fix}
}

func proofOf(gone bool, err error) proof {
	if err != nil {
		return unproved(err)
	}
	return proof{gone: gone}
}

// disk goes by the lists that were read; a list that could not be read is reported by itself.
func (v *inventory) disk(o Owned) proof {
	other, taken := v.others[o.VM]
	i := slices.IndexFunc(v.disks, func(d foundDisk) bool { return d.is(o) })
	switch exists := i >= 0; {
	case exists && taken && other.uses(o.Volume):
		return proof{gone: true, reason: fmt.Sprintf("another guest %d has a disk of this name now", o.VM)}
	case exists:
		return proof{reason: "still there", fix: v.disks[i].remedy()}
	case len(v.unread) > 0:
		return proof{reason: "not proved: not everything could be read"}
	}
	return proof{gone: true}
}

// file looks for an image, a snippet or another file.
func (v *inventory) file(ctx context.Context, o Owned) proof {
	storage := storageOf(o.Volume)
	volumes, err := v.client.Volumes(ctx, o.Node, storage, contentOf(o.Volume), 0)
	if err != nil {
		return unproved(err)
	}
	if _, exists := volumes[o.Volume]; exists {
		return proof{reason: "still there", fix: o.remedy()}
	}
	sees, err := allowed(ctx, v.client, "/storage/"+storage, "Datastore.Allocate")
	if err == nil && !sees {
		return proof{
			reason: "not proved: this API token may not see all files there",
			fix:    "give the token Datastore.Allocate on /storage/" + storage,
		}
	}
	return proofOf(true, err)
}

// readDisks reads which disks carry the ids of the machines among all, on every storage of every node.
func (v *inventory) readDisks(ctx context.Context, all []Owned) {
	var ids []int
	for _, o := range all {
		if o.Kind == Machine && !slices.Contains(ids, o.VM) {
			ids = append(ids, o.VM)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	v.client.eachDiskStorage(ctx, v.nodes, func(node string, s Storage) error {
		shared := s.Shared == 1
		for _, id := range ids {
			volumes, err := v.client.Volumes(ctx, node, s.ID, "images", id)
			if err != nil {
				return err
			}
			for _, volume := range sortedKeys(volumes) {
				disk := Owned{Kind: Disk, Node: node, VM: id, Volume: volume}
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
func (v *inventory) checkRights(ctx context.Context, all []Owned) {
	checked := map[string]bool{}
	for _, o := range all {
		storage := storageOf(o.Volume)
		if o.Kind != Disk || checked[storage] {
			continue
		}
		checked[storage] = true
		sees, err := seesDisks(ctx, v.client, storage, o.VM)
		switch {
		case err != nil:
			v.cannotRead("storage", storage, err)
		case !sees:
			v.unread = append(v.unread, event.OwnedObject{
				Kind: "storage", ID: storage,
				Reason: "not proved: this API token may not see all disks there",
				Fix:    "give the token Datastore.Allocate on /storage/" + storage,
			})
		case !v.read["/"+storage] && !v.read[o.Node+"/"+storage] && len(v.unread) == 0:
			v.cannotRead("storage", storage+" on node "+o.Node,
				errors.New("the node does not list it for disks"))
		}
	}
}

func (v *inventory) cannotRead(kind, id string, err error) {
	object := event.OwnedObject{Kind: kind, ID: id, Reason: notProved(err)}
	if kind == "node" {
		object.Fix = "run the same command again when it is back; " +
			"one that is gone for good has to leave the Proxmox cluster: pvecm delnode " + id
	}
	v.unread = append(v.unread, object)
}
