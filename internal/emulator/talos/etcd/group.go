package etcd

import (
	"errors"
	"math/rand/v2"
	"slices"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// group is one raft group. Two bootstrapped machines are two groups, even under the same CA.
type group struct {
	members   []*member
	leader    uint64 // as of the last elect
	term      uint64
	index     uint64
	elections []*election // one for each virtual address
	ending    bool        // sessions are about to end without a quorum
	recovered bool        // it began with the data of a snapshot
	lost      bool        // it has no quorum, as of the last OnQuorum
}

// member is one machine's part in a cluster. It outlives the machine's power
// and even its disk, until it is removed.
type member struct {
	id      uint64
	cluster *group
	node    *Node
	name    string // empty until its first start
	learner bool
	started bool // its data directory is in use: it serves whenever the machine is up
	removed bool // the others have removed it: its process ends whenever it starts
	alarm   pb.EtcdMemberAlarm_AlarmType
}

func (c *group) add(n *Node, learner bool) *member {
	c.index++
	// A machine that returns with a blank disk first removes its former member.
	c.members = slices.DeleteFunc(c.members, func(old *member) bool { return old.name == n.host.Hostname() })
	e := &member{id: rand.Uint64() | 1, cluster: c, node: n, learner: learner}
	c.members = append(c.members, e)
	return e
}

// serves reports whether the member's process is up: its disk is still in the
// machine, and the machine's services run.
func (e *member) serves() bool {
	return e.started && !e.removed && e.node.member == e && e.node.host.Ready()
}

func (e *member) leave() {
	e.removed = true
	e.cluster.index++
	e.cluster.members = slices.DeleteFunc(e.cluster.members, func(x *member) bool { return x == e })
}

// elect keeps or chooses the leader and returns it; 0 without a quorum of voters.
func (c *group) elect() uint64 {
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

// removable is the check of etcd before it removes a member: the others must keep their quorum
// (etcd: server/etcdserver/server.go, mayRemoveMember).
func (c *group) removable(e *member) error {
	var voters, active int
	for _, x := range c.members {
		if !x.learner {
			voters++
			if x.serves() {
				active++
			}
		}
	}
	switch {
	case e.learner:
	case voters == 1:
		return errors.New("etcdserver: re-configuration failed due to not enough started members")
	case e.serves() && active-1 < 1+(voters-1)/2:
		return errors.New("etcdserver: unhealthy cluster")
	}
	return nil
}
