package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
)

// look is one look at a datacenter.
type look struct {
	*Client
	ctx    context.Context
	mute   error // why nothing can be asked
	nodes  []Node
	disks  []seenDisk
	read   map[string]bool // node/storage whose disks are known; /storage if it is shared
	blind  []event.OwnedObject   // what could not be asked
	others map[int]Config  // by id: the other guest that has it now
	things []event.OwnedObject
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
	l.things = append(l.things, event.OwnedObject{Kind: t.Kind, ID: t.ID(), Where: where, Gone: gone, Reason: reason, Fix: way})
	l.traces = append(l.traces, t)
}

func (l *look) all(traces []Trace) []event.OwnedObject {
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
		if t.Kind == Disk && !t.Left {
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
			l.blind = append(l.blind, event.OwnedObject{
				Kind: "storage", ID: storage, Reason: "not proved: this API token may not see all disks there",
				Fix: "give the token Datastore.Allocate on /storage/" + storage,
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
	l.blind = append(l.blind, event.OwnedObject{Kind: kind, ID: id, Reason: unproved(err), Fix: way})
}
