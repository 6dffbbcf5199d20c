package talos

import (
	"fmt"
	"net/netip"
	"slices"

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

// MoveVirtualIP takes the virtual address from its holder, which goes to the end
// of the line, and gives it to another candidate: the machine with that address
// or hostname, or the next in line if to is empty.
func (f *Fleet) MoveVirtualIP(virtual, to string) error {
	address, err := netip.ParseAddr(virtual)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.unlock()
	for _, m := range f.machines {
		if m.etcd == nil {
			continue
		}
		for _, e := range m.etcd.cluster.elections {
			if e.address == address && e.holder != nil && e.holder.machine == m {
				return f.moveVirtualIP(m.etcd.cluster, e, to)
			}
		}
	}
	return fmt.Errorf("no machine has the virtual address %s", virtual)
}

func (f *Fleet) moveVirtualIP(c *etcdCluster, e *election, to string) error {
	i := slices.IndexFunc(e.line, func(c *candidate) bool {
		return c != e.holder && !c.gone && (to == "" || c.machine == f.find(to))
	})
	if i < 0 {
		return fmt.Errorf("no other control plane stands in line for %s", e.address)
	}
	next := e.line[i]
	e.line = slices.Concat([]*candidate{next}, slices.Delete(slices.Delete(e.line, i, i+1), 0, 1), []*candidate{e.holder})
	f.settle(c)
	return nil
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
