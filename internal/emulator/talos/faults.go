package talos

import (
	"fmt"

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
