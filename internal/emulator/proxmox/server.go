// Package proxmox is a Proxmox VE datacenter that exists only in memory: the
// part of its HTTP API that Terraform's bpg/proxmox provider and castle use,
// with the states in between, the error texts and the awkward habits of the
// real one.
//
// It is a state machine, not a recording. Whatever takes time on a real node is
// a task here: the call answers at once with a task id, the effect comes when
// the task's duration is over, and a VM that is being made is locked and
// nameless until then. Tasks outlive the client that started them, as they do
// on a real node; that is how a killed run leaves half a cluster behind.
//
// What is deliberately missing: clones, containers beyond occupying an id,
// live migration, snapshots beyond the empty list, pending changes (a change to
// a running VM is visible at once), and anything that needs SSH.
package proxmox

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"time"
)

// Config says what the datacenter is like. The zero value is one node named
// proxmox with the two storages of a fresh installation, tasks that take no
// time, and a door that nobody can open: Token or Password should be set.
type Config struct {
	Token          string // the API token that is let in: "castle@pve!castle=<secret>"
	User, Password string // a login for access/ticket; none while Password is empty
	Nodes          []string
	Storages       []Storage
	// Pool, when set, limits every caller to what an ACL on /pool/<Pool> allows.
	Pool string
	// Version decides how errors look: before 8.4 a body carries no message,
	// before 9.1.5 a bad token is told what is bad about it.
	Version   string
	Duration  time.Duration            // how long a task takes that Durations does not name
	Durations map[string]time.Duration // by task type: qmcreate, qmstart, qmstop, qmshutdown, qmdestroy, resize, download, imgdel
	AuthDelay time.Duration            // how long a refused caller waits for its 401; 3 s on a real node
	ImageSize int64                    // virtual size of every imported image, in bytes
	// The hooks are called with the VM as it is when its task has had its
	// effect, before the task is reported as finished, and without any lock held.
	OnStart, OnStop, OnDestroy func(VM)
}

// Storage is one datastore, present on every node.
type Storage struct {
	ID      string
	Type    string   // dir or lvmthin
	Content []string // what it may hold: images, import, iso, …
	Path    string   // where a dir keeps its files
}

const (
	defaultVersion   = "9.1.9"
	defaultImageSize = 8 << 30
)

// Server is the datacenter. It is safe for concurrent use.
type Server struct {
	config Config
	routes []route
	ctx    context.Context // ends the tasks
	cancel context.CancelFunc

	mu         sync.Mutex
	machines   map[int]*machine
	volumes    map[volumeKey]*Disk
	tasks      []*task
	active     int        // tasks that run
	settled    *sync.Cond // on mu: active has fallen to 0
	offline    map[string]bool
	pools      map[string]string // id -> comment
	faults     []*Fault
	privileges map[string][]string // by path; nil: what castle needs
	requests   []Request
	serial     int64
}

// New makes a datacenter without any guest. Close ends its tasks.
func New(c Config) *Server {
	if len(c.Nodes) == 0 {
		c.Nodes = []string{"proxmox"}
	}
	if len(c.Storages) == 0 {
		c.Storages = []Storage{
			{ID: "local", Type: "dir", Content: []string{"backup", "images", "import", "iso", "snippets", "vztmpl"}, Path: "/var/lib/vz"},
			{ID: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}},
		}
	}
	if c.Version == "" {
		c.Version = defaultVersion
	}
	if c.ImageSize == 0 {
		c.ImageSize = defaultImageSize
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		config: c, ctx: ctx, cancel: cancel, machines: map[int]*machine{}, volumes: map[volumeKey]*Disk{},
		offline: map[string]bool{}, pools: map[string]string{}, serial: 0x1000,
	}
	if c.Pool != "" {
		s.pools[c.Pool] = ""
	}
	s.routes, s.settled = s.table(), sync.NewCond(&s.mu)
	return s
}

// Handler answers the API below /api2/json. Reason phrases, in which older
// releases put the only error text, need HTTP/1.1: see HTTPServer.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// HTTPServer is an HTTP/1.1 server for Handler; a real node speaks no HTTP/2.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: time.Minute,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
}

// Close stops the tasks that still run, without effect, and waits for them.
func (s *Server) Close() {
	s.cancel()
	s.Idle()
}

// Idle waits until no task is running.
func (s *Server) Idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.active > 0 {
		s.settled.Wait()
	}
}
