package talos

import (
	"math/rand/v2"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// etcdCluster is one raft group. Bootstrapping two machines makes two of them,
// even under the same CA.
type etcdCluster struct {
	members   []*member
	leader    uint64 // as of the last elect
	term      uint64
	index     uint64
	elections []*election // one for each virtual address
	ending    bool        // sessions are about to end for want of a quorum
}

// member is one machine's part in an etcdCluster. It outlives the machine's
// power and even its disk, until somebody removes it.
type member struct {
	id      uint64
	cluster *etcdCluster
	machine *machine
	name    string // empty until it has started for the first time
	learner bool
	started bool // its data directory is in use: it serves whenever the machine is up
	alarm   machineapi.EtcdMemberAlarm_AlarmType
}

func (c *etcdCluster) add(m *machine, learner bool) *member {
	c.index++
	// A machine that comes back with a blank disk first removes its former self.
	c.members = slices.DeleteFunc(c.members, func(old *member) bool { return old.name == m.hostname() })
	e := &member{id: rand.Uint64() | 1, cluster: c, machine: m, learner: learner}
	c.members = append(c.members, e)
	return e
}

// serves reports whether the member's process is up: the disk is still in its
// machine and the machine has its services running.
func (e *member) serves() bool { return e.started && e.machine.etcd == e && e.machine.ready }

func (e *member) leave() {
	e.cluster.index++
	e.cluster.members = slices.DeleteFunc(e.cluster.members, func(x *member) bool { return x == e })
}

func (c *etcdCluster) learner() *member {
	for _, e := range c.members {
		if e.learner {
			return e
		}
	}
	return nil
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

// found makes the machine the first member of a new cluster.
func (f *Fleet) found(m *machine) {
	m.etcd = (&etcdCluster{}).add(m, false)
	f.resumeEtcd(m)
}

// resumeEtcd goes on with whatever the machine's member has still before it.
func (f *Fleet) resumeEtcd(m *machine) {
	switch e := m.etcd; {
	case e == nil:
	case e.started:
		f.promoteLater(e)
	case e.learner:
		f.after(m, f.config.Delays.Join, func() { f.startMember(e) })
	default:
		f.after(m, f.config.Delays.Etcd, func() { f.startMember(e) })
	}
	f.advanceEtcd()
}

func (f *Fleet) startMember(e *member) {
	e.started, e.name = true, e.machine.hostname()
	f.promoteLater(e)
	f.advanceEtcd()
}

func (f *Fleet) promoteLater(e *member) {
	if !e.learner {
		return
	}
	f.after(e.machine, f.config.Delays.Promote, func() {
		if e.learner && e.cluster.elect() != 0 && !f.held[e.machine.Address] && !f.held[e.name] && !f.holdsBack(e) {
			f.promote(e)
		}
	})
}

func (f *Fleet) promote(e *member) {
	e.learner = false
	e.cluster.index++
	f.advanceEtcd()
}

// advanceEtcd announces a cluster that has begun to serve, and lets the next
// control plane join: etcd takes one learner at a time.
func (f *Fleet) advanceEtcd() {
	for _, m := range f.machines {
		if !m.ready || !m.controlPlane() {
			continue
		}
		if m.etcd == nil {
			if c := f.joinable(m); c != nil {
				m.etcd = c.add(m, true)
				f.resumeEtcd(m)
				return
			}
			continue
		}
		if m.etcd.serves() && !m.etcd.learner {
			f.announceLater(m)
			f.campaignLater(m)
			f.settle(m.etcd.cluster)
		}
	}
}

// joinable finds the etcd cluster of m's peers that takes a learner now.
func (f *Fleet) joinable(m *machine) *etcdCluster {
	for _, peer := range f.machines {
		if e := peer.etcd; e != nil && peer.installed.ca == m.installed.ca && e.cluster.learner() == nil && e.cluster.elect() != 0 {
			return e.cluster
		}
	}
	return nil
}

func (f *Fleet) announceLater(m *machine) {
	ca := m.installed.ca
	if m.announcing || f.bootstrapped[ca] {
		return
	}
	m.announcing = true
	f.after(m, f.config.Delays.Kubernetes, func() {
		if f.bootstrapped[ca] {
			return
		}
		f.bootstrapped[ca] = true
		if hook := f.config.Hooks.OnBootstrap; hook != nil {
			spec := f.clusterSpec(m)
			f.later(func() { hook(spec) })
		}
	})
}
