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

	"github.com/ephemeral-castle/castle/internal/event"
)

// Search asks a datacenter whether traces are gone.
//
// The provider does not wait for every task that it starts: it calls an image
// deleted whose deletion has only begun. So what is still there, and is being
// worked on, is waited for. A list that the token sees only a part of proves
// nothing; neither does a node that does not answer.
type Search struct {
	Client   *Client
	Interval time.Duration // between two looks; a second, if 0
	Patience time.Duration // with tasks that go on; ten minutes, if 0
}

// Gone says of each trace, and of each other disk that carries the id of a
// machine among them, whether it is gone. Report is told once what is waited for.
// The error is that of a context that has ended.
func (s Search) Gone(ctx context.Context, traces []Trace, report func(string)) ([]event.Thing, error) {
	interval, patience := cmp.Or(s.Interval, time.Second), cmp.Or(s.Patience, 10*time.Minute)
	began, told := time.Now(), false
	for {
		l := look{Client: s.Client, ctx: ctx}
		tasks := l.running() // first: one that ends before the look has had its effect
		things := l.all(traces)
		if ctx.Err() != nil {
			return things, context.Cause(ctx)
		}
		busy := l.busy(tasks)
		if len(busy) == 0 {
			return things, nil
		}
		if time.Since(began) >= patience {
			for i, task := range busy {
				things[i].Gone = false
				things[i].Reason = fmt.Sprintf("Proxmox' task %s is still running after %s", task.Kind, patience)
			}
			return things, nil
		}
		if !told {
			told = true
			for _, i := range slices.Sorted(maps.Keys(busy)) {
				report(fmt.Sprintf("%s %s: Proxmox' task %s is still running; waiting for it", things[i].Kind, things[i].ID, busy[i].Kind))
			}
		}
		if err := sleep(ctx, interval); err != nil {
			return things, err
		}
	}
}

// Survey adds the disks that carry the ids of the machines among traces now,
// as far as they can be seen: cloud-init drives are in no state.
func (s Search) Survey(ctx context.Context, traces []Trace) []Trace {
	l := look{Client: s.Client, ctx: ctx}
	l.running()
	l.storages(traces)
	for _, d := range l.disks {
		if !slices.ContainsFunc(traces, d.is) {
			traces = append(traces, d.Trace)
		}
	}
	return traces
}

// look is one look at a datacenter.
type look struct {
	*Client
	ctx    context.Context
	mute   error // why nothing can be asked
	nodes  []Node
	disks  []seenDisk
	read   map[string]bool // node/storage whose disks are known; /storage if it is shared
	blind  []event.Thing   // what could not be asked
	others map[int]Config  // by id: the other guest that has it now
	things []event.Thing
	traces []Trace // of things
}

type seenDisk struct {
	Trace
	shared bool
}

func (d seenDisk) is(t Trace) bool {
	return t.Kind == Disk && t.Volume == d.Volume && (d.shared || t.Node == d.Node)
}

// running reads the nodes, and the tasks of those that answer.
func (l *look) running() map[string][]Task {
	l.read, l.others = map[string]bool{}, map[int]Config{}
	if l.nodes, l.mute = l.Nodes(l.ctx); l.mute != nil {
		return nil
	}
	all := map[string][]Task{}
	for _, node := range l.nodes {
		if node.Status == offline {
			continue
		}
		if tasks, err := l.Running(l.ctx, node.Name); err == nil {
			all[node.Name] = tasks
		}
	}
	return all
}

const offline = "offline"

func (l *look) add(t Trace, gone bool, reason, way string) {
	where := ""
	if t.Node != "" {
		where = "node " + t.Node
	}
	l.things = append(l.things, event.Thing{Kind: t.Kind, ID: t.id(), Where: where, Gone: gone, Reason: reason, Way: way})
	l.traces = append(l.traces, t)
}

func (l *look) all(traces []Trace) []event.Thing {
	kinds := []string{Machine, Disk, Image, Snippet, File}
	traces = slices.SortedStableFunc(slices.Values(traces), func(a, b Trace) int {
		return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind)
	})
	if l.mute != nil {
		for _, t := range traces {
			l.add(t, false, unproved(l.mute), "")
		}
		return l.things
	}
	for _, t := range traces {
		if t.Kind == Machine {
			l.machine(t)
		}
	}
	l.storages(traces)
	l.unseen(traces)
	for _, t := range traces {
		if t.Kind == Disk {
			l.disk(t)
		}
	}
	for _, d := range l.disks { // nobody has named these
		if _, taken := l.others[d.VM]; !taken && !slices.ContainsFunc(traces, d.is) {
			l.add(d.Trace, false, fmt.Sprintf("it carries the id of machine %d, which did not use it", d.VM), d.free())
		}
	}
	for _, t := range traces {
		if t.isFile() {
			l.file(t)
		}
	}
	for _, b := range l.blind {
		l.things = append(l.things, b)
		l.traces = append(l.traces, Trace{})
	}
	return l.things
}

// busy are the things that a task may still change, by index.
func (l *look) busy(tasks map[string][]Task) map[int]Task {
	found := map[int]Task{}
	for i, t := range l.traces {
		for node, running := range tasks {
			for _, task := range running {
				if (t.Node == node || t.Kind == Machine) && task.concerns(t, !l.things[i].Gone) {
					found[i] = task
				}
			}
		}
	}
	return found
}

// machine judges by the id, which the whole cluster knows whoever asks, and by
// the hardware address, if the id is taken.
func (l *look) machine(t Trace) {
	taken, err := l.Taken(l.ctx, t.VM)
	if err != nil {
		l.add(t, false, unproved(err), "")
		return
	}
	if !taken {
		l.add(t, true, "", "")
		return
	}
	guests, err := l.Guests(l.ctx)
	if err != nil {
		l.add(t, false, unproved(err), "")
		return
	}
	i := slices.IndexFunc(guests, func(g Guest) bool { return g.ID == t.VM })
	if i < 0 {
		l.add(t, false, "a guest that this API token may not see has this id", fmt.Sprintf("give the token VM.Audit on /vms/%d to see what it is", t.VM))
		return
	}
	g := guest{Guest: guests[i], tags: splitTags(guests[i].Tags)}
	if g.Kind != "qemu" {
		l.others[t.VM] = nil // a container's disks are called the same; what it uses is not asked
		l.add(t, true, "the id belongs to another guest now: "+g.describe(), "")
		return
	}
	config, err := l.Config(l.ctx, g.Node, t.VM)
	if err != nil {
		l.add(t, false, unproved(err), "")
		return
	}
	g.tags, g.macs, g.Name, g.Lock = config.Tags(), config.MACs(), cmp.Or(config["name"], g.Name), config["lock"]
	if len(t.MACs) > 0 && len(g.macs) > 0 && !slices.ContainsFunc(t.MACs, func(mac string) bool { return slices.Contains(g.macs, strings.ToUpper(mac)) }) {
		l.others[t.VM] = config
		l.add(t, true, "the id belongs to another machine now: "+g.describe(), "")
		return
	}
	t.Node = g.Node
	if (len(t.MACs) == 0 || len(g.macs) == 0) && g.Name != t.Name {
		l.add(t, false, "not proved: the state had no hardware address to tell it from "+g.describe(), "")
		return
	}
	l.add(t, false, "still there: "+g.describe(), fmt.Sprintf("as root on node %s: qm stop %d && qm destroy %d --purge", g.Node, t.VM, t.VM))
}

// storages reads which disks carry the ids of the machines among traces, on
// every storage of every node.
func (l *look) storages(traces []Trace) {
	var ids []int
	for _, t := range traces {
		if t.Kind == Machine {
			ids = append(ids, t.VM)
		}
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) == 0 {
		return
	}
	for _, node := range l.nodes {
		if node.Status == offline {
			l.cannot("node", node.Name, errors.New("it is offline"))
			continue
		}
		all, err := l.Storages(l.ctx, node.Name)
		if err != nil {
			l.cannot("node", node.Name, err)
			continue
		}
		for _, storage := range all {
			if !l.read["/"+storage.ID] && slices.Contains(strings.Split(storage.Content, ","), "images") {
				l.storage(node.Name, storage, ids)
			}
		}
	}
}

// storage reads one storage as one node sees it.
func (l *look) storage(node string, storage Storage, ids []int) {
	where := storage.ID + " on node " + node
	if storage.Active == 0 {
		l.cannot("storage", where, errors.New("it is not active"))
		return
	}
	shared := storage.Shared == 1
	for _, id := range ids {
		volumes, err := l.Volumes(l.ctx, node, storage.ID, "images", id)
		if err != nil {
			l.cannot("storage", where, err)
			return
		}
		for _, volume := range volumes {
			l.disks = append(l.disks, seenDisk{Trace{Kind: Disk, Node: node, VM: id, Volume: volume}, shared})
		}
	}
	if shared {
		node = "" // the same everywhere
	}
	l.read[node+"/"+storage.ID] = true
}

// unseen tells of storages that have had disks of ours and that the token does
// not see, or only in part.
func (l *look) unseen(traces []Trace) {
	asked := map[string]bool{}
	for _, t := range traces {
		storage := storageOf(t.Volume)
		if t.Kind != Disk || asked[storage] {
			continue
		}
		asked[storage] = true
		sees, err := l.seesDisks(l.ctx, storage, t.VM)
		switch {
		case err != nil:
			l.cannot("storage", storage, err)
		case !sees:
			l.blind = append(l.blind, event.Thing{
				Kind: "storage", ID: storage, Reason: "not proved: this API token may not see all disks there",
				Way: "give the token Datastore.Allocate on /storage/" + storage,
			})
		case !l.read["/"+storage] && !l.read[t.Node+"/"+storage] && len(l.blind) == 0:
			l.cannot("storage", storage+" on node "+t.Node, errors.New("the node does not list it for disks"))
		}
	}
}

func (l *look) cannot(kind, id string, err error) {
	way := ""
	if kind == "node" {
		way = "run the same command again when it is back; one that is gone for good has to leave the Proxmox cluster: pvecm delnode " + id
	}
	l.blind = append(l.blind, event.Thing{Kind: kind, ID: id, Reason: unproved(err), Way: way})
}

// disk judges a disk by the lists that were read; where one could not be read,
// that is told of by itself.
func (l *look) disk(t Trace) {
	other, taken := l.others[t.VM]
	i := slices.IndexFunc(l.disks, func(d seenDisk) bool { return d.is(t) })
	switch there := i >= 0; {
	case there && taken && other.uses(t.Volume):
		l.add(t, true, fmt.Sprintf("guest %d, another one, has a disk of this name now", t.VM), "")
	case there:
		l.add(t, false, "still there", l.disks[i].free())
	case len(l.blind) > 0:
		l.add(t, false, "not proved: not everything could be asked", "")
	default:
		l.add(t, true, "", "")
	}
}

// uses reports whether a machine has this volume.
func (c Config) uses(volume string) bool {
	for _, value := range c {
		if first, _, _ := strings.Cut(value, ","); first == volume {
			return true
		}
	}
	return false
}

// file judges an image, a snippet or another file.
func (l *look) file(t Trace) {
	storage := storageOf(t.Volume)
	volumes, err := l.Volumes(l.ctx, t.Node, storage, contentOf(t.Volume), 0)
	if err != nil {
		l.add(t, false, unproved(err), "")
		return
	}
	if slices.Contains(volumes, t.Volume) {
		l.add(t, false, "still there", free(t))
		return
	}
	switch sees, err := l.allowed(l.ctx, "/storage/"+storage, "Datastore.Allocate"); {
	case err != nil:
		l.add(t, false, unproved(err), "")
	case !sees:
		l.add(t, false, "not proved: this API token may not see all files there", "give the token Datastore.Allocate on /storage/"+storage)
	default:
		l.add(t, true, "", "")
	}
}

// free is how a disk is removed by hand. On shared storage it may be another
// Proxmox cluster's, which has a machine with this id, too.
func (d seenDisk) free() string {
	if d.shared {
		return fmt.Sprintf("unless another Proxmox cluster that shares %s has a machine %d, %s", storageOf(d.Volume), d.VM, free(d.Trace))
	}
	return free(d.Trace)
}

func unproved(err error) string { return "not proved: " + err.Error() }

// free is how a volume is removed by hand.
func free(t Trace) string { return fmt.Sprintf("as root on node %s: pvesm free %s", t.Node, t.Volume) }
