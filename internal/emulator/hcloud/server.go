// Package hcloud emulates a project of Hetzner Cloud in memory: the part of its HTTP API that castle and the
// Terraform provider hetznercloud/hcloud use. Requests and answers have the types of hcloud-go's package
// schema.
//
// It is a state machine, not a recording. An operation that takes time is an action, which locks its
// resource,
// has progress, and takes effect when its duration is over, even if the client is gone. References back from
// one resource to another, such as the servers of a network, are derived before each answer.
//
// Error codes, statuses and limits are those of Hetzner's API description and of hcloud-go; most messages are
// this package's own, because only codes are documented. The exceptions are those that the provider compares.
//
// Deliberately missing: floating IPs, certificates, backups, ISOs, metrics, reverse DNS, DNS zones, storage
// boxes, vSwitches and projects: a server has one project.
package hcloud

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Config describes the project. The zero value has no token, and actions that take no time.
type Config struct {
	Token    string // may do everything
	ReadOnly string // a token that may only read
	// Limit is the number of requests that a burst may have; 3600, as in every project, if 0. One more is
	// allowed each second.
	Limit     int
	Addresses netip.Prefix   // of public IPv4 addresses; 198.51.100.0/24, if zero
	Quota     map[string]int // the most resources of a kind, by its name in a path: servers
	// Unavailable lists server types that a location has no room for, as "cx23@fsn1".
	Unavailable []string
	Duration    time.Duration            // of an action that Durations does not name
	Durations   map[string]time.Duration // by command: create_server, start_server, attach_to_network, …
	// OnShutdown gets a server whose guest has to shut down, and returns when the guest is off. Without it
	// the guest is off at once.
	OnShutdown func(Machine)
	// Listens reports whether a server's guest takes connections at a port while it runs, for the health of
	// targets; without it, at each. It runs under a lock, and may not call the project.
	Listens func(server int64, port int) bool
	// The other hooks get the server after the action has taken effect, and before the action has ended.
	// OnNetwork is about a server that has got a private network, or has lost one. They run without a lock.
	OnStart, OnStop, OnDelete, OnNetwork func(Machine)
}

// Machine is a server as the hooks see it.
type Machine struct {
	Server   schema.Server
	UserData string
}

// Server is the project. It is safe for concurrent use.
type Server struct {
	config   Config
	ctx      context.Context // ends all actions
	cancel   context.CancelFunc
	mux      *http.ServeMux
	mu       sync.Mutex // guards all that follows
	lastID   int64
	address  netip.Addr // the last one that was assigned
	budget   budget
	actions  map[int64]*action
	locks    map[reference]bool
	userData map[int64]string
	deaf     map[int64]bool // servers whose guests ignore that they have to shut down
	faults   []*Fault
	requests []Request
	idle     *sync.Cond // on mu: an action has ended

	servers   *collection[schema.Server]
	networks  *collection[schema.Network]
	balancers *collection[schema.LoadBalancer]
	firewalls *collection[schema.Firewall]
	addresses *collection[schema.PrimaryIP]
	groups    *collection[schema.PlacementGroup]
	keys      *collection[schema.SSHKey]
	images    *collection[schema.Image]
	volumes   *collection[schema.Volume]
}

// New creates a project without resources. Close ends its actions.
func New(c Config) *Server {
	if !c.Addresses.IsValid() {
		c.Addresses = netip.MustParsePrefix("198.51.100.0/24")
	}
	c.Limit = cmp.Or(c.Limit, 3600)
	s := &Server{
		config: c, mux: http.NewServeMux(), lastID: 1_000_000, address: c.Addresses.Masked().Addr(),
		budget: budget{limit: c.Limit}, actions: map[int64]*action{}, locks: map[reference]bool{},
		userData: map[int64]string{}, deaf: map[int64]bool{},
	}
	s.idle = sync.NewCond(&s.mu)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.route()
	return s
}

// Close ends the running actions without effect and waits for them.
func (s *Server) Close() {
	s.cancel()
	s.Idle()
}

// Idle waits until no action is running.
func (s *Server) Idle() {
	defer s.locked()()
	for slices.ContainsFunc(sorted(s.actions), (*action).running) {
		s.idle.Wait()
	}
}

func (s *Server) locked() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Requests lists every call so far, oldest first.
func (s *Server) Requests() []Request {
	defer s.locked()()
	return slices.Clone(s.requests)
}

// Fail adds a fault. The oldest that matches a call wins.
func (s *Server) Fail(f Fault) {
	defer s.locked()()
	s.faults = append(s.faults, &f)
}

// Servers lists every server, by id.
func (s *Server) Servers() []schema.Server { return all(s, s.servers) }

// Networks lists every network, by id.
func (s *Server) Networks() []schema.Network { return all(s, s.networks) }

// LoadBalancers lists every load balancer, by id.
func (s *Server) LoadBalancers() []schema.LoadBalancer { return all(s, s.balancers) }

// Firewalls lists every firewall, by id.
func (s *Server) Firewalls() []schema.Firewall { return all(s, s.firewalls) }

// PrimaryIPs lists every primary IP, by id.
func (s *Server) PrimaryIPs() []schema.PrimaryIP { return all(s, s.addresses) }

// PlacementGroups lists every placement group, by id.
func (s *Server) PlacementGroups() []schema.PlacementGroup { return all(s, s.groups) }

// Images lists every image and snapshot, by id.
func (s *Server) Images() []schema.Image { return all(s, s.images) }

// Volumes lists every volume, by id.
func (s *Server) Volumes() []schema.Volume { return all(s, s.volumes) }

// AddImage adds an image or a snapshot, which is available at once, and returns its id.
func (s *Server) AddImage(i schema.Image) int64 {
	defer s.locked()()
	i.Status, i.Type = cmp.Or(i.Status, "available"), cmp.Or(i.Type, "snapshot")
	i.Architecture, i.OSFlavor = cmp.Or(i.Architecture, "x86"), cmp.Or(i.OSFlavor, "unknown")
	return *s.images.add(s, &i).id
}

// SetProtection switches the protection of a server against deletion on or off.
func (s *Server) SetProtection(id int64, on bool) {
	defer s.locked()()
	if server := s.servers.rows[id]; server != nil {
		server.Protection.Delete, server.Protection.Rebuild = on, on
	}
}

// Serves reports whether the API has the path of a request.
func (s *Server) Serves(r *http.Request) bool {
	_, pattern := s.mux.Handler(r)
	return pattern != "/"
}

// SetDeaf has a server's guest ignore a shutdown, or obey again.
func (s *Server) SetDeaf(id int64, deaf bool) {
	defer s.locked()()
	s.deaf[id] = deaf
}

// PowerOff stops a server without an action, as a guest does that shuts down.
func (s *Server) PowerOff(id int64) {
	defer s.locked()()
	if server := s.servers.rows[id]; server != nil {
		server.Status = "off"
	}
}

func all[T any](s *Server, k *collection[T]) []T {
	defer s.locked()()
	s.derive()
	views := []T{}
	for _, row := range sorted(k.rows) {
		views = append(views, *row)
	}
	return views
}
