package talos

import (
	"fmt"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// HoldLearner keeps the machine's etcd member a learner until ReleaseLearner.
// The machine may be named before it exists, by address or hostname.
func (f *Fleet) HoldLearner(machine string) {
	f.mu.Lock()
	defer f.unlock()
	f.held[machine] = true
}

// ReleaseLearner lets a held learner be promoted.
func (f *Fleet) ReleaseLearner(machine string) {
	f.mu.Lock()
	defer f.unlock()
	delete(f.held, machine)
	if m := f.find(machine); m != nil && m.etcd != nil && m.etcd.serves() {
		f.promoteLater(m.etcd)
	}
}

// heldLearner is what HoldLastLearner was asked for.
type heldLearner struct {
	d            time.Duration
	begins, ends func()
	member       *member // whom it has met; it is done once
}

// HoldLastLearner keeps the etcd member of the last control plane a learner for
// d longer than it would be one, once. begins and ends are told when it could
// have been promoted, and just before it is. The last is the one that completes the
// control planes which are configured at that moment; a first member is none.
func (f *Fleet) HoldLastLearner(d time.Duration, begins, ends func()) {
	f.mu.Lock()
	defer f.unlock()
	f.lastLearner = &heldLearner{d: d, begins: begins, ends: ends}
}

// holdsBack reports whether HoldLastLearner keeps e from being promoted now.
func (f *Fleet) holdsBack(e *member) bool {
	h := f.lastLearner
	if h == nil || (h.member == nil && !f.completes(e)) {
		return false
	}
	if h.member != nil {
		return h.member == e
	}
	h.member = e
	f.later(h.begins)
	f.config.AfterFunc(h.d, func() {
		h.ends()
		f.mu.Lock()
		defer f.unlock()
		f.lastLearner = nil
		switch {
		case f.closed, !e.learner, !e.serves(): // its machine goes on when it is back
		case e.cluster.elect() != 0:
			f.promote(e)
		default:
			f.promoteLater(e)
		}
	})
	return true
}

// completes reports whether every other control plane of e's cluster votes.
func (f *Fleet) completes(e *member) bool {
	for _, m := range f.machines {
		if m.controlPlane() && m.installed.ca == e.machine.installed.ca && m.etcd != e && (m.etcd == nil || m.etcd.learner) {
			return false
		}
	}
	return true
}

// RaiseAlarm sets an etcd alarm, "NOSPACE" or "CORRUPT", on the machine's
// member; "NONE" clears it.
func (f *Fleet) RaiseAlarm(machine, alarm string) error {
	kind, known := machineapi.EtcdMemberAlarm_AlarmType_value[alarm]
	if !known {
		return fmt.Errorf("etcd has no alarm %q", alarm)
	}
	f.mu.Lock()
	defer f.unlock()
	m := f.find(machine)
	if m == nil || m.etcd == nil {
		return fmt.Errorf("machine %s has no etcd member", machine)
	}
	m.etcd.alarm = machineapi.EtcdMemberAlarm_AlarmType(kind)
	return nil
}
