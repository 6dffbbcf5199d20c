// Package guest emulates the guests of a datacenter and their life (qemu-server): create, configure, start,
// clone, snapshot, back up, migrate, delete; their pools, and the hardware of nodes that they use.
//
// Guests holds them. A handler checks a call as a real node does before it starts a worker, with the same
// text, and returns the id of a task, in which the effect follows. Until then the guest is locked.
package guest

import (
	"cmp"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
)

// Guests are the machines of a datacenter.
type Guests struct {
	config  Config
	all     map[int]*Guest
	pools   map[string]bool
	disks   *storage.Volumes
	workers *rpc.Workers
	access  *access.Control
	stack   HighAvailability
}

// Config is what guests need of a datacenter.
type Config struct {
	Nodes    []string
	Offline  func(node string) bool
	Bridges  []string // of every node
	Mappings []Mapping
	// ChecksTags has a new guest with tags checked before it is in its pool, as since release 9.2.
	ChecksTags bool
	// Patience is how long a shutdown waits for a guest that ignores it; as long as its call says, if 0.
	Patience time.Duration
	// OnShutdown gets a VM whose guest has to shut down, and returns when the guest is off. OnNetwork gets
	// one whose first card has another configuration, and the others one whose task is about to be reported
	// as finished. All are optional, and run without a lock.
	OnShutdown, OnStart, OnStop, OnDestroy, OnNetwork func(VM)
	// Agent returns the addresses of the first card that the guest agent of a running VM tells, and whether
	// one runs. It is called with a lock. Without it, each guest has an agent, and the address of ipconfig0.
	Agent func(VM) (addresses []netip.Prefix, runs bool)
}

// HighAvailability is the stack that manages guests, as their calls need it.
type HighAvailability interface {
	Want(g *Guest, state string) // notes that a caller wants a guest started or stopped
	Release(g *Guest)            // removes a guest that is deleted
}

// New returns a datacenter without guests, which Manage puts under an HA stack.
func New(c Config, d *storage.Volumes, w *rpc.Workers, a *access.Control) *Guests {
	return &Guests{config: c, all: map[int]*Guest{}, pools: map[string]bool{}, disks: d, workers: w,
		access: a}
}

// Manage puts the guests under an HA stack.
func (s *Guests) Manage(by HighAvailability) { s.stack = by }

// Get returns a guest, hidden or not; nil if there is none with that id.
func (s *Guests) Get(id int) *Guest { return s.all[id] }

// All lists the guests, hidden ones included, by id.
func (s *Guests) All() (all []*Guest) {
	for _, id := range sortedKeys(s.all) {
		all = append(all, s.all[id])
	}
	return all
}

// Add adds a guest without a call, with the disks that its Config names.
func (s *Guests) Add(v VM) {
	g := Guest(v)
	g.snapshots = nil // those of another guest, if it is a copy
	g.Node, g.Kind, g.Config = cmp.Or(v.Node, s.config.Nodes[0]), cmp.Or(v.Kind, "qemu"), map[string]string{}
	maps.Copy(g.Config, v.Config)
	for key, value := range map[string]string{
		"name": v.Name, "lock": v.Lock, "tags": strings.Join(v.Tags, ";"),
		"protection": flags[v.Protection], "template": flags[v.Template],
	} {
		g.Set(key, cmp.Or(value, g.Config[key]))
	}
	if g.Running && g.Started.IsZero() {
		g.Started = time.Now()
	}
	s.all[v.ID] = &g
	if v.Hidden {
		s.access.Hide(v.ID)
	}
	if v.Pool != "" {
		s.pools[v.Pool] = true
	}
	for volume, size := range g.ownVolumes() {
		s.addImage(&g, volume, size)
	}
}

func (s *Guests) addImage(g *Guest, volume string, size int64) {
	s.disks.Store(g.Node, storage.Disk{Volume: volume, Owner: g.ID, Size: size, Format: "raw",
		Content: "images"})
}

// Delete deletes a guest and its disks without a call.
func (s *Guests) Delete(g *Guest) {
	for volume := range g.ownVolumes() {
		s.disks.Free(g.Node, volume)
	}
	s.remove(g)
}

// Configure sets options of a guest without a call; an empty value removes one. Volumes that they name come
// into being, and none goes.
func (s *Guests) Configure(g *Guest, options map[string]string) {
	for key, value := range options {
		g.Set(key, value)
	}
	for volume, size := range g.ownVolumes() {
		if s.disks.Get(g.Node, volume) == nil {
			s.addImage(g, volume, size)
		}
	}
}

// AddPool adds an empty pool.
func (s *Guests) AddPool(name string) { s.pools[name] = true }

// PoolOf returns the pool of a guest; "" for none.
func (s *Guests) PoolOf(id int) string {
	if g := s.all[id]; g != nil {
		return g.Pool
	}
	return ""
}

// HasDisks reports whether a guest's node has all its volumes.
func (s *Guests) HasDisks(g *Guest) bool {
	for volume := range g.ownVolumes() {
		if s.disks.Get(g.Node, volume) == nil {
			return false
		}
	}
	return true
}

// remove removes a guest with its access control lists.
func (s *Guests) remove(g *Guest) {
	delete(s.all, g.ID)
	s.access.Remove(g.ID)
}
