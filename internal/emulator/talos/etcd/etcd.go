// Package etcd emulates the etcd of Talos machines: its members, from the bootstrap or a snapshot over the
// learners to their removal, its quorum, alarms and leadership, and the virtual addresses that Talos assigns
// through it. It has no content.
//
// Each machine has a Node, whose Host tells about the machine. Etcd takes all steps, under the lock of the
// fleet: it goes on whenever a machine is ready, stops, or has another configuration.
package etcd

import (
	"net/netip"
	"slices"
	"time"
)

// Release is that of every member.
const Release = "3.6.9"

// Etcd runs the members of all machines.
type Etcd struct {
	config      Config
	nodes       []*Node
	held        map[string]bool // machines whose member stays a learner
	lastLearner *heldLearner
	announced   map[string]*group // those for which OnBootstrap was called, by CA
}

// Config is what Etcd needs of a fleet. Lock, Later and the functions of time are those of the fleet.
type Config struct {
	Delays    Delays
	Lock      func() (unlock func())
	Later     func(func())                         // runs a hook without the lock
	InTime    func(time.Duration, func())          // runs under the lock, unless the fleet is closed by then
	AfterFunc func(time.Duration, func())          // runs without the lock
	Closed    func() bool                          // the fleet has ended
	OnQuorum  func(ca string)                      // a cluster has lost its quorum, or has one again
	OnStart   func(address string, recovered bool) // a cluster serves for the first time, on a machine
	// OnVirtualIP tells that a virtual address has another holder, by its address, or none.
	OnVirtualIP func(virtual, holder string)
	// Recover makes etcd's data of a snapshot, or says whether it has left something there.
	Recover func(address string, snapshot []byte, skipHashCheck bool) (written bool, err error)
	// DatabaseSize is the size of a machine's database; nil: 4 MiB.
	DatabaseSize func(address string) int64
}

// Delays is how long each step takes.
type Delays struct {
	Start    time.Duration // a member alone, or with data, to one that serves
	Join     time.Duration // learner added to learner running
	Promote  time.Duration // learner running to voter
	Announce time.Duration // first member to OnStart
	Campaign time.Duration // a member votes to its machine competes for virtual addresses
	Session  time.Duration // power cut to the loss of a virtual address
}

// Host is the machine of a node.
type Host interface {
	Address() string
	Hostname() string
	Ready() bool // its services run
	ControlPlane() bool
	CA() string // of its configuration, which identifies the cluster; "" without one
	Life() int  // counts starts and power cuts
	// After runs fn once d has passed, unless the machine has started or lost power in between.
	After(d time.Duration, fn func())
	// VirtualIPs are those of its configuration on a link that it has.
	VirtualIPs() []netip.Addr
	// Assign gives it a virtual address, and Withdraw takes it away.
	Assign(netip.Prefix)
	Withdraw(netip.Prefix)
}

// Node is a machine's part in etcd. The disk has all but what ends with a restart.
type Node struct {
	host       Host
	member     *member
	snapshot   []byte    // that a caller has uploaded
	recovery   *recovery // from it, until it has succeeded
	left       bool      // its etcd has stopped for good, until the machine restarts
	announcing bool      // OnStart is due
	campaigns  bool      // it competes for its virtual addresses, or is about to
}

// New returns an etcd without nodes.
func New(c Config) *Etcd {
	return &Etcd{config: c, held: map[string]bool{}, announced: map[string]*group{}}
}

// Add adds a machine with a blank disk.
func (d *Etcd) Add(h Host) *Node {
	n := &Node{host: h}
	d.nodes = append(d.nodes, n)
	return n
}

// Remove removes a machine with its disk. The cluster still counts its member.
func (d *Etcd) Remove(n *Node) {
	d.nodes = slices.DeleteFunc(d.nodes, func(x *Node) bool { return x == n })
	d.Wipe(n)
}

// Wipe empties a node's disk. The cluster still counts its member. The machine has its configuration yet.
func (d *Etcd) Wipe(n *Node) {
	ca := n.host.CA()
	n.member, n.snapshot, n.recovery = nil, nil, nil
	hasData := func(x *Node) bool { return x.member != nil && x.member.cluster == d.announced[ca] }
	if !slices.ContainsFunc(d.nodes, hasData) {
		delete(d.announced, ca) // no data is left: the same secrets may found a new cluster
	}
}

// Starts tells a node that its machine starts.
func (d *Etcd) Starts(n *Node) {
	n.left = false
	if n.recovery != nil && !n.recovery.spoilt() {
		n.recovery = nil
	}
}

// Stopped tells a node that its machine's services have stopped.
func (d *Etcd) Stopped(n *Node) {
	n.announcing = false
	if n.member != nil {
		d.endSessionsWithoutQuorum(n.member.cluster)
	}
}

// Announced reports whether OnStart was called for the cluster of a CA.
func (d *Etcd) Announced(ca string) bool { return d.announced[ca] != nil }

// HasQuorum reports whether the announced cluster of a CA that match accepts has a quorum.
func (d *Etcd) HasQuorum(match func(ca string) bool) bool {
	for ca, c := range d.announced {
		if match(ca) && c.elect() != 0 {
			return true
		}
	}
	return false
}

// ReportQuorum calls OnQuorum for the announced clusters that have lost their quorum, or have one again.
func (d *Etcd) ReportQuorum() {
	for ca, c := range d.announced {
		if lost := c.elect() == 0; lost != c.lost {
			c.lost = lost
			d.config.OnQuorum(ca)
		}
	}
}

// HasData reports whether the node's data directory has content.
func (n *Node) HasData() bool { return n.member != nil || n.recovery != nil && n.recovery.written }

// Healthy reports whether the node votes in a cluster with a quorum.
func (n *Node) Healthy() bool {
	return n.member != nil && n.member.serves() && !n.member.learner && n.member.cluster.elect() != 0
}

// MemberID is the id of the node's member; 0 before its first start, and after its removal.
func (n *Node) MemberID() uint64 {
	if n.member == nil || !n.member.started || n.member.removed {
		return 0
	}
	return n.member.id
}

// Service is the state of the service etcd of a machine, and why it is that; "" while it waits for others. It
// prepares while there is no cluster to join; a learner runs and fails its health check.
func (n *Node) Service() (state, why string) {
	switch {
	case n.left:
		return "Finished", "Service finished successfully"
	case !n.host.Ready():
		return "", ""
	case n.recovery != nil && n.recovery.failed != "":
		return "Failed", n.recovery.failed
	case n.member == nil || !n.member.serves():
		return "Preparing", "Running pre state"
	case n.member.learner:
		return "Running", noLearners
	case n.member.cluster.elect() == 0:
		return "Running", "context deadline exceeded"
	}
	return "", ""
}
