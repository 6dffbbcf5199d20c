// Package proxmox emulates a Proxmox VE datacenter in memory: the part of its HTTP
// API that castle and Terraform's bpg/proxmox provider use, with the intermediate
// states, the error texts and the quirks of the real one.
//
// It is a state machine, not a recording. An operation that takes time on a real node is a task here: the
// call returns a task id at once, and the effect follows the task's duration. A VM in creation is locked and
// has no name until then. Tasks outlive the client that started them, as on a real node: a killed run leaves
// half a cluster behind.
//
// Server holds the state. A call reads one request, and the table of routes has its handler, which runs under
// the server's mutex; tasks run operations that take time.
//
// Deliberately missing: containers beyond occupying an id, storages that only some nodes have, and
// everything that needs SSH.
package proxmox

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"time"
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
}

// Storage is one datastore, present on every node.
type Storage struct {
	ID      string
	Type    string   // dir, nfs, lvmthin or rbd
	Content []string // what it may hold: images, import, iso, …
	Path    string   // the directory of a dir or nfs
	Shared  bool     // every node sees the same volumes
}

// Server is the datacenter. It is safe for concurrent use.
type Server struct {
	config   Config
	ctx      context.Context // ends all tasks
	cancel   context.CancelFunc
	mu       sync.Mutex // guards all that follows
	guests   map[int]*guest
	disks    disks
	pools    map[string]bool
	offline  map[string]bool // nodes
	access   *access
	ha       highAvailability
	faults   []*Fault
	requests []Request
	tasks    []*task
	idle     *sync.Cond // on mu: a task has ended
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
	s := &Server{
		config: c, guests: map[int]*guest{}, disks: disks{map[volumeKey]*Disk{}, map[string]bool{}},
		pools: map[string]bool{}, offline: map[string]bool{},
		ha: highAvailability{map[string]map[string]string{}, map[string]map[string]string{}, nil},
	}
	for _, st := range c.Storages {
		s.disks.shared[st.ID] = st.Shared
	}
	s.access = newAccess(s.guests)
	for _, credentials := range []string{c.Token, c.User} {
		if credentials != "" {
			s.access.admit(credentials)
		}
	}
	s.idle = sync.NewCond(&s.mu)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
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
func (s *Server) Close() {
	s.cancel()
	s.Idle()
}

// Idle waits until no task is running.
func (s *Server) Idle() {
	defer s.locked()()
	for slices.ContainsFunc(s.tasks, (*task).running) {
		s.idle.Wait()
	}
}

func (s *Server) locked() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Requests lists every call so far, oldest first, without credentials.
func (s *Server) Requests() []Request {
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
		s.recover(node)
	}
}

// SetToken replaces all tokens that are accepted. A user that is new may do everything.
func (s *Server) SetToken(token string) {
	defer s.locked()()
	clear(s.access.tokens)
	s.access.admit(token)
}

// SetLock locks a guest (backup, migrate, …) or, with "", unlocks it.
func (s *Server) SetLock(id int, lock string) {
	s.with(id, func(g *guest) { g.set("lock", lock) })
}

// SetProtection switches a guest's protection against deletion on or off.
func (s *Server) SetProtection(id int, on bool) {
	s.with(id, func(g *guest) { g.set("protection", flags[on]) })
}

// SetDeaf has a guest ignore ACPI, or obey again.
func (s *Server) SetDeaf(id int, deaf bool) {
	s.with(id, func(g *guest) { g.Deaf = deaf })
}

// PowerOff stops a guest as a power cut does, without a task or a hook. High availability starts it again.
func (s *Server) PowerOff(id int) {
	s.with(id, func(g *guest) {
		if g.Running = false; g.HA {
			s.resource(sidOf(id))
			s.follow(g)
		}
	})
}

// RemoveVM deletes a guest and its disks without an API call.
func (s *Server) RemoveVM(id int) {
	s.with(id, func(g *guest) {
		for volume := range g.ownVolumes() {
			s.disks.free(g.Node, volume)
		}
		s.access.remove(g)
	})
}

// with changes a guest, if it exists.
func (s *Server) with(id int, change func(*guest)) {
	defer s.locked()()
	if g := s.guests[id]; g != nil {
		change(g)
	}
}

// VMs lists every guest, hidden ones included, by id.
func (s *Server) VMs() []VM {
	defer s.locked()()
	all := []VM{}
	for _, id := range sortedKeys(s.guests) {
		all = append(all, s.guests[id].view())
	}
	return all
}

// AddDisk adds a volume to a storage, such as an orphaned disk.
func (s *Server) AddDisk(d Disk) {
	defer s.locked()()
	s.disks.store(cmp.Or(d.Node, s.config.Nodes[0]), d)
}

// RemoveDisk removes a volume from its storage without an API call.
func (s *Server) RemoveDisk(node, volume string) {
	defer s.locked()()
	s.disks.free(node, volume)
}

// Disks lists every volume, by node and name.
func (s *Server) Disks() []Disk {
	defer s.locked()()
	all := []Disk{}
	for _, d := range s.disks.sorted() {
		all = append(all, *d)
	}
	return all
}
