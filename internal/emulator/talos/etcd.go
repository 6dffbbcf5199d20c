package talos

import (
	"math/rand/v2"
	"slices"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// etcdCluster is one raft group. Two bootstrapped machines are two groups, even under the same CA.
type etcdCluster struct {
	members   []*member
	leader    uint64 // as of the last elect
	term      uint64
	index     uint64
	elections []*election // one for each virtual address
	ending    bool        // sessions are about to end without a quorum
	recovered bool        // it began with the data of a snapshot
	lost      bool        // it has no quorum, as of the last OnQuorum
}

// member is one machine's part in an etcdCluster. It outlives the machine's power
// and even its disk, until it is removed.
type member struct {
	id      uint64
	cluster *etcdCluster
	machine *machine
	name    string // empty until its first start
	learner bool
	started bool // its data directory is in use: it serves whenever the machine is up
	removed bool // the others have removed it: its process ends whenever it starts
	alarm   pb.EtcdMemberAlarm_AlarmType
}

func (c *etcdCluster) add(m *machine, learner bool) *member {
	c.index++
	// A machine that returns with a blank disk first removes its former member.
	c.members = slices.DeleteFunc(c.members, func(old *member) bool { return old.name == m.hostname() })
	e := &member{id: rand.Uint64() | 1, cluster: c, machine: m, learner: learner}
	c.members = append(c.members, e)
	return e
}

// serves reports whether the member's process is up: its disk is still in the
// machine, and the machine's services run.
func (e *member) serves() bool {
	return e.started && !e.removed && e.machine.etcd == e && e.machine.ready
}

func (e *member) leave() {
	e.removed = true
	e.cluster.index++
	e.cluster.members = slices.DeleteFunc(e.cluster.members, func(x *member) bool { return x == e })
}

// elect keeps or chooses the leader and returns it; 0 without a quorum of voters.
func (c *etcdCluster) elect() uint64 {
	var voters int
	var up []*member
	for _, e := range c.members {
		if !e.learner {
			voters++
			if e.serves() {
				up = append(up, e)
			}
		}
	}
	if 2*len(up) <= voters {
		c.leader = 0
		return 0
	}
	if !slices.ContainsFunc(up, func(e *member) bool { return e.id == c.leader }) {
		c.leader = up[0].id
		c.term++
	}
	return c.leader
}

// etcd runs the members of all machines.
type etcd struct {
	world       *world
	held        map[string]bool // machines whose member stays a learner
	lastLearner *heldLearner
	announced   map[string]*etcdCluster // those for which OnBootstrap was called, by CA
}

// found makes the machine the first member of a new cluster.
func (d *etcd) found(m *machine) {
	m.recovery = nil
	m.etcd = (&etcdCluster{}).add(m, false)
	d.resume(m)
}

// resume continues with the next step of the machine's member.
func (d *etcd) resume(m *machine) {
	switch e := m.etcd; {
	case e == nil:
	case e.started:
		d.promoteLater(e)
	case e.learner:
		d.world.after(m, d.world.config.Delays.Join, func() { d.startMember(e) })
	default:
		d.world.after(m, d.world.config.Delays.Etcd, func() { d.startMember(e) })
	}
	d.advance()
}

func (d *etcd) startMember(e *member) {
	e.started, e.name = true, e.machine.hostname()
	d.promoteLater(e)
	d.advance()
}

func (d *etcd) promoteLater(e *member) {
	if !e.learner {
		return
	}
	d.world.after(e.machine, d.world.config.Delays.Promote, func() {
		held := d.held[e.machine.spec.Address] || d.held[e.name]
		if e.learner && e.cluster.elect() != 0 && !held && !d.holdsBack(e) {
			d.promote(e)
		}
	})
}

func (d *etcd) promote(e *member) {
	e.learner = false
	e.cluster.index++
	d.advance()
}

// advance announces a cluster that has begun to serve, and lets the next control
// plane join: etcd admits one learner at a time.
func (d *etcd) advance() {
	for _, m := range d.world.machines {
		switch {
		case !m.ready || !m.controlPlane() || m.leftEtcd || m.recovery != nil:
		case m.etcd == nil:
			if c := d.joinable(m); c != nil {
				m.etcd = c.add(m, true)
				d.resume(m)
				return
			}
		case m.etcd.removed:
		case m.etcd.serves() && !m.etcd.learner:
			d.announceLater(m)
			d.campaignLater(m)
			d.settle(m.etcd.cluster)
		}
	}
}

// joinable finds the etcd cluster of m's peers that admits a learner now.
func (d *etcd) joinable(m *machine) *etcdCluster {
	learner := func(e *member) bool { return e.learner }
	for _, peer := range d.world.machines {
		if peer.etcd == nil || peer.etcd.removed || peer.installed == nil ||
			peer.installed.CA != m.installed.CA {
			continue
		}
		if c := peer.etcd.cluster; !slices.ContainsFunc(c.members, learner) && c.elect() != 0 {
			return c
		}
	}
	return nil
}

// anyVoter finds a serving voter among m's peers.
func (d *etcd) anyVoter(m *machine) *member {
	for _, peer := range d.world.machines {
		if e := peer.etcd; e != nil && e.serves() && !e.learner && peer.installed.CA == m.installed.CA {
			return e
		}
	}
	return nil
}

func (d *etcd) announceLater(m *machine) {
	ca := m.installed.CA
	if m.announcing || d.announced[ca] != nil {
		return
	}
	m.announcing = true
	d.world.after(m, d.world.config.Delays.Kubernetes, func() {
		if d.announced[ca] == nil && m.etcd != nil {
			d.announced[ca] = m.etcd.cluster
			callLater(d.world, d.world.config.Hooks.OnBootstrap, m.clusterSpec())
		}
	})
}

// heldLearner is the request of HoldLastLearner.
type heldLearner struct {
	d            time.Duration
	begins, ends func()
	member       *member // that it holds; it is done once
	seen         bool    // a client has listed the members meanwhile
}

// unseen is how long a learner is held back whom no client sees. Its time counts from the first look at it:
// on a slow machine it would otherwise be over before anybody asks.
const unseen = 30 * time.Second

// holdsBack reports whether HoldLastLearner delays the promotion of e.
func (d *etcd) holdsBack(e *member) bool {
	h := d.lastLearner
	switch {
	case h == nil, h.member == nil && !d.completes(e):
		return false
	case h.member != nil:
		return h.member == e
	}
	h.member = e
	d.world.later(h.begins)
	d.world.config.AfterFunc(unseen, func() {
		defer d.world.lock()()
		d.seen()
	})
	return true
}

// seen is a client's look at the members. The caller holds the lock.
func (d *etcd) seen() {
	h := d.lastLearner
	if h == nil || h.member == nil || h.seen {
		return
	}
	h.seen = true
	e := h.member
	d.world.config.AfterFunc(h.d, func() {
		h.ends()
		defer d.world.lock()()
		d.lastLearner = nil
		switch {
		case d.world.closed, !e.learner, !e.serves(): // it continues when its machine is back
		case e.cluster.elect() != 0:
			d.promote(e)
		default:
			d.promoteLater(e)
		}
	})
}

// completes reports whether every other control plane of e's cluster votes.
func (d *etcd) completes(e *member) bool {
	return !slices.ContainsFunc(d.world.machines, func(m *machine) bool {
		return m.controlPlane() && m.installed.CA == e.machine.installed.CA && m.etcd != e &&
			(m.etcd == nil || m.etcd.learner)
	})
}
