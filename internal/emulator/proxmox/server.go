// Package proxmox emulates a Proxmox VE datacenter in memory: the part of its HTTP API that castle and
// Terraform's bpg/proxmox provider use, with the intermediate states, the error texts and the quirks of the
// real one.
//
// It is a state machine, not a recording. An operation that takes time on a real node is a task here: the
// call returns a task id at once, and the effect follows the task's duration. A VM in creation is locked and
// has no name until then. Tasks outlive the client that started them, as on a real node: a killed run leaves
// half a cluster behind.
//
// The packages below it stand in for the parts of Proxmox VE, each with its state and its calls: access has
// the users and what they may do, rpc runs calls and tasks, storage has the volumes, option knows what a
// guest's configuration may say, guest has the machines and their life, ha keeps them running, and failure
// has the answers to what is refused. Server puts them together: it reads a request, finds the caller and the
// handler in the routes of the parts, and runs that under the one mutex that guards them all.
//
// Deliberately missing: containers beyond occupying an id, storages that only some nodes have, and everything
// that needs SSH.
package proxmox

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/guest"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/ha"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
)

// Config describes the datacenter. The zero value is one node named proxmox with the two storages of a fresh
// installation and tasks that take no time. It has no login: set Token or Password.
type Config struct {
	// Token is an API token, "castle@pve!castle=<secret>", whose user may do everything. Pveum adds others.
	Token          string
	User, Password string // a login for access/ticket; none while Password is empty
	Nodes          []string
	Storages       []Storage
	Bridges        []string // of every node; vmbr0, if empty
	Mappings       []Mapping
	// Version decides the form of errors: before 8.4 a body carries no message,
	// before 9.1.5 the answer to a bad token explains it.
	Version   string
	Duration  time.Duration            // of a task that Durations does not name
	Durations map[string]time.Duration // by task type: qmcreate, qmstart, qmdestroy, resize, download, …
	// Patience is how long a shutdown waits for a guest that ignores it; as long as its call says, if 0.
	Patience time.Duration
	// Fetch is what a node hears from a web server when it asks for a URL; an error is the status line of the
	// refusal. Without it every URL has a file.
	Fetch func(url string) error
	// OnShutdown gets a VM whose guest has to shut down, and returns when the guest is off. It runs without a
	// lock. Without it the guest is off at once.
	OnShutdown func(VM)
	// The other hooks get the VM after its task has taken effect and before the task is
	// reported as finished. They run without a lock.
	OnStart, OnStop, OnDestroy func(VM)
	// OnNetwork gets a running VM whose first card has another configuration. It runs without a lock.
	OnNetwork func(VM)
	// Agent returns the addresses of the first card that the guest agent of a running VM tells, and whether
	// one runs. It is called with a lock. Without it, each guest has an agent, and the address of ipconfig0.
	Agent func(VM) (addresses []netip.Prefix, runs bool)
}

// VM is a guest as others see it: AddVM creates it, hooks and VMs return it.
type VM = guest.VM

// Mapping is a resource mapping of the datacenter: one device of each of its nodes, under one name.
type Mapping = guest.Mapping

// Storage is one datastore, present on every node.
type Storage = storage.Storage

// Disk is a volume on a storage: a guest's disk, or a file such as an image.
type Disk = storage.Disk

// Server is the datacenter. It is safe for concurrent use.
type Server struct {
	config   Config
	mu       sync.Mutex // guards all that follows
	guests   *guest.Guests
	disks    *storage.Volumes
	offline  map[string]bool // nodes
	access   *access.Control
	ha       *ha.Stack
	faults   []*Fault
	requests []rpc.Request
	workers  *rpc.Workers
}

// New creates a datacenter without guests. Close ends its tasks.
func New(c Config) *Server {
	if len(c.Nodes) == 0 {
		c.Nodes = []string{"proxmox"}
	}
	if len(c.Storages) == 0 {
		all := []string{"backup", "images", "import", "iso", "snippets", "vztmpl"}
		c.Storages = []Storage{
			{ID: "local", Type: "dir", Content: all, Path: "/var/lib/vz"},
			{ID: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}},
		}
	}
	if len(c.Bridges) == 0 {
		c.Bridges = []string{"vmbr0"}
	}
	c.Version = cmp.Or(c.Version, "9.1.9")
	s := &Server{config: c, offline: map[string]bool{}, disks: storage.New(c.Storages, c.Fetch)}
	s.workers = rpc.NewWorkers(&s.mu, s.config.duration)
	s.access = access.New(access.Config{User: c.User, Password: c.Password, Explains: c.before(9, 1, 5),
		PoolOf: func(vmid int) string { return s.guests.PoolOf(vmid) }})
	for _, credentials := range []string{c.Token, c.User} {
		if credentials != "" {
			s.access.Admit(credentials)
		}
	}
	offline := func(node string) bool { return s.offline[node] }
	s.guests = guest.New(guest.Config{Nodes: c.Nodes, Offline: offline, Bridges: c.Bridges,
		Mappings: c.Mappings, ChecksTags: !c.before(9, 2), Patience: c.Patience, OnShutdown: c.OnShutdown,
		OnStart: c.OnStart, OnStop: c.OnStop, OnDestroy: c.OnDestroy, OnNetwork: c.OnNetwork,
		Agent: c.Agent},
		s.disks, s.workers, s.access)
	s.ha = ha.New(ha.Config{Nodes: c.Nodes, Offline: offline, Rules: !c.before(9, 0, 0)}, s.guests)
	s.guests.Manage(s.ha)
	return s
}

// duration is that of the tasks of a type.
func (c *Config) duration(kind string) time.Duration {
	if duration, ok := c.Durations[kind]; ok {
		return duration
	}
	return c.Duration
}

// HTTPServer is an HTTP/1.1 server for Handler; a real node does not speak HTTP/2.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: time.Minute,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
}

// Close stops the running tasks without effect and waits for them.
func (s *Server) Close() { s.workers.Close() }

// Idle waits until no task is running.
func (s *Server) Idle() { s.workers.Idle() }

func (s *Server) locked() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Requests lists every call so far, oldest first, without credentials.
func (s *Server) Requests() []rpc.Request {
	defer s.locked()()
	return slices.Clone(s.requests)
}

// Fail adds a fault. The oldest that matches a call wins.
func (s *Server) Fail(f Fault) {
	defer s.locked()()
	s.faults = append(s.faults, &f)
}

// SetOffline takes a node off the network, or brings it back. Others take over what is highly available.
func (s *Server) SetOffline(node string, offline bool) {
	defer s.locked()()
	if s.offline[node] = offline; offline {
		s.ha.Recover(node)
	}
}

// SetToken replaces all tokens that are accepted. A user that is new may do everything.
func (s *Server) SetToken(token string) {
	defer s.locked()()
	s.access.SetToken(token)
}

// Pveum runs a command of pveum, the node's tool for users and access, and returns what it prints: the secret
// of a new token. It has the commands with which an administrator limits a token. A value has no spaces, so
// quotes have no meaning.
func (s *Server) Pveum(command string) (string, error) {
	defer s.locked()()
	return s.access.Pveum(command, s.guests.AddPool)
}

// SetLock locks a guest (backup, migrate, …) or, with "", unlocks it.
func (s *Server) SetLock(id int, lock string) {
	s.with(id, func(g *guest.Guest) { g.Set("lock", lock) })
}

// SetProtection switches a guest's protection against deletion on or off.
func (s *Server) SetProtection(id int, on bool) {
	s.with(id, func(g *guest.Guest) { g.Set("protection", map[bool]string{true: "1"}[on]) })
}

// SetDeaf has a guest ignore ACPI, or obey again.
func (s *Server) SetDeaf(id int, deaf bool) {
	s.with(id, func(g *guest.Guest) { g.Deaf = deaf })
}

// PowerOff stops a guest as a power cut does, without a task or a hook. High availability starts it again.
func (s *Server) PowerOff(id int) {
	s.with(id, func(g *guest.Guest) {
		if g.Running = false; g.HA {
			s.ha.Failed(g)
		}
	})
}

// AddVM adds a guest to the datacenter without an API call, with the disks that its Config names.
func (s *Server) AddVM(v VM) {
	defer s.locked()()
	s.guests.Add(v)
}

// RemoveVM deletes a guest and its disks without an API call.
func (s *Server) RemoveVM(id int) { s.with(id, s.guests.Delete) }

// Migrate moves a guest with its volumes without an API call.
func (s *Server) Migrate(id int, node string) {
	s.with(id, func(g *guest.Guest) { s.guests.Carry(g, node) })
}

// Configure sets options of a guest without an API call; an empty value removes one. Volumes that they name
// come into being, and none goes.
func (s *Server) Configure(id int, options map[string]string) {
	s.with(id, func(g *guest.Guest) { s.guests.Configure(g, options) })
}

// AddRule adds a rule of the HA stack without an API call: {"type": …, "resources": "vm:421,vm:422", …}.
func (s *Server) AddRule(name string, options map[string]string) {
	defer s.locked()()
	s.ha.AddRule(name, options)
}

// HAConfig returns the options of the resources, vm:421, and rules that exist.
func (s *Server) HAConfig() map[string]map[string]string {
	defer s.locked()()
	return s.ha.Options()
}

// with changes a guest, if it exists.
func (s *Server) with(id int, change func(*guest.Guest)) {
	defer s.locked()()
	if g := s.guests.Get(id); g != nil {
		change(g)
	}
}

// VMs lists every guest, hidden ones included, by id.
func (s *Server) VMs() []VM {
	defer s.locked()()
	all := []VM{}
	for _, g := range s.guests.All() {
		all = append(all, g.View())
	}
	return all
}

// AddDisk adds a volume to a storage, such as an orphaned disk.
func (s *Server) AddDisk(d Disk) {
	defer s.locked()()
	s.disks.Store(cmp.Or(d.Node, s.config.Nodes[0]), d)
}

// RemoveDisk removes a volume from its storage without an API call.
func (s *Server) RemoveDisk(node, volume string) {
	defer s.locked()()
	s.disks.Free(node, volume)
}

// Disks lists every volume, by node and name.
func (s *Server) Disks() []Disk {
	defer s.locked()()
	all := []Disk{}
	for _, d := range s.disks.Sorted() {
		all = append(all, *d)
	}
	return all
}
