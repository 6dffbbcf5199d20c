package etcd

import (
	"slices"
	"time"
)

// heldLearner is the request of HoldLast.
type heldLearner struct {
	d            time.Duration
	begins, ends func()
	member       *member // that it holds; it is done once
	seen         bool    // a client has listed the members meanwhile
}

// unseen is how long a learner is held back whom no client sees. Its time counts from the first look at it:
// on a slow machine it would otherwise be over before anybody asks.
const unseen = 30 * time.Second

// holdsBack reports whether HoldLast delays the promotion of e.
func (d *Etcd) holdsBack(e *member) bool {
	h := d.lastLearner
	switch {
	case h == nil, h.member == nil && !d.completes(e):
		return false
	case h.member != nil:
		return h.member == e
	}
	h.member = e
	d.config.Later(h.begins)
	d.config.AfterFunc(unseen, func() {
		defer d.config.Lock()()
		d.seen()
	})
	return true
}

// seen is a client's look at the members. The caller holds the lock.
func (d *Etcd) seen() {
	h := d.lastLearner
	if h == nil || h.member == nil || h.seen {
		return
	}
	h.seen = true
	e := h.member
	d.config.AfterFunc(h.d, func() {
		h.ends()
		defer d.config.Lock()()
		d.lastLearner = nil
		switch {
		case d.config.Closed(), !e.learner, !e.serves(): // it continues when its machine is back
		case e.cluster.elect() != 0:
			d.promote(e)
		default:
			d.promoteLater(e)
		}
	})
}

// completes reports whether every other control plane of e's cluster votes.
func (d *Etcd) completes(e *member) bool {
	return !slices.ContainsFunc(d.nodes, func(n *Node) bool {
		return n.host.ControlPlane() && n.host.CA() == e.node.host.CA() && n.member != e &&
			(n.member == nil || n.member.learner)
	})
}

// HoldLast keeps the member of the last control plane a learner for longer than it would be one, once.
func (d *Etcd) HoldLast(longer time.Duration, begins, ends func()) {
	d.lastLearner = &heldLearner{d: longer, begins: begins, ends: ends}
}

// Hold keeps the member of a machine a learner until Free. It may be named before it exists, by address or
// hostname.
func (d *Etcd) Hold(machine string) { d.held[machine] = true }

// Free allows the promotion of a held learner; n is nil for a machine that does not exist.
func (d *Etcd) Free(machine string, n *Node) {
	delete(d.held, machine)
	if n != nil && n.member != nil && n.member.serves() {
		d.promoteLater(n.member)
	}
}
