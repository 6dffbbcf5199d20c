// Package talos emulates Talos Linux machines, without Talos: real gRPC and TLS on each machine's own
// address, real machine configurations, certificates and kubeconfigs, the real order of events and the real
// error texts.
//
// A Fleet is a set of machines that can reach each other. A machine boots into maintenance mode and accepts a
// configuration from anyone. It restarts with a certificate of that configuration's CA, and from then on
// accepts only clients of that CA. Control planes that share the CA form an etcd cluster after one of them is
// bootstrapped. No Kubernetes runs: through Hooks, a caller can start one.
//
// A machine's disk has two systems, as with GRUB. An upgrade installs one beside the one that runs, and a
// restart boots it; if that boot fails, the former one returns. The list of Talos 1.13 decides which changes
// of a configuration need a restart. MachineStatus, events and logs report each step. Statistics are missing,
// and the logs of what does not run here. The check of the cluster's health asks its Kubernetes.
//
// etcd has members and no content: a snapshot comes from a hook, and goes to another hook when a machine
// recovers etcd from it.
//
// The fleet's parts share a world: the machines, the clock and the mutex. power starts, configures, stops and
// wipes machines, and the services answer calls. Both change the same machines step by step, and are one
// package. Those below it know no fleet: etcd runs the members of machines and assigns virtual addresses,
// machineconfig reads configurations, installer has images and boot entries, journal the events and logs,
// resources the COSI resources, apid is the front of a machine's API, and health checks a cluster.
//
// Everything that takes time runs through Config.AfterFunc, so a test can drive time, and a power cut cancels
// what the machine had pending. Hooks run after the mutex is released.
package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/etcd"
)

// Fleet is a set of emulated machines.
type Fleet struct {
	world *world
	power *power
	etcd  *etcd.Etcd
}

// New returns a fleet without machines.
func New(c Config) *Fleet {
	if c.AfterFunc == nil {
		c.AfterFunc = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}
	w := &world{config: c}
	w.ctx, w.end = context.WithCancel(context.Background())
	etcd := etcd.New(w.etcdConfig())
	power := &power{world: w, etcd: etcd, failing: map[string]bool{}}
	w.refresh = power.refresh
	return &Fleet{world: w, power: power, etcd: etcd}
}

// Boot switches a machine on. A machine whose address is known keeps its disks; a new one has blank disks.
func (f *Fleet) Boot(spec Machine) error {
	return f.switchOn(spec, func(m *machine) { f.power.boot(m, f.world.config.Delays.Boot) })
}

// Place adds a machine that was switched on long ago: its API answers when Place returns.
func (f *Fleet) Place(spec Machine) error { return f.switchOn(spec, f.power.start) }

func (f *Fleet) switchOn(spec Machine, begin func(*machine)) error {
	if _, err := netip.ParseAddr(spec.Address); err != nil {
		return fmt.Errorf("machine %q: %w", spec.Name, err)
	}
	defer f.world.lock()()
	if f.world.closed {
		return errors.New("fleet is closed")
	}
	m := f.world.find(spec.Address)
	switch {
	case m == nil:
		m = &machine{spec: spec}
		m.boots, m.etcd = m.blank(), f.etcd.Add(host{f.world, m})
		f.world.machines = append(f.world.machines, m)
	case m.stage != Off:
		return fmt.Errorf("machine %s is on already", spec.Address)
	}
	m.spec = spec
	begin(m)
	return nil
}

// Halt cuts a machine's power. Its disks stay.
func (f *Fleet) Halt(address string) {
	defer f.world.lock()()
	if m := f.world.find(address); m != nil {
		f.power.off(m)
	}
}

// Shutdown switches a machine off as ACPI does: it ends its services first.
func (f *Fleet) Shutdown(address string) {
	defer f.world.lock()()
	if m := f.world.find(address); m != nil && m.stage != Off {
		f.power.shutDown(m)
	}
}

// Remove cuts a machine's power and discards its disks.
func (f *Fleet) Remove(address string) {
	defer f.world.lock()()
	if m := f.world.find(address); m != nil {
		f.power.off(m)
		f.world.machines = slices.DeleteFunc(f.world.machines, func(x *machine) bool { return x == m })
		f.etcd.Remove(m.etcd)
	}
}

// Stage returns how far the machine has come; Off for an unknown one.
func (f *Fleet) Stage(address string) Stage {
	defer f.world.lock()()
	if m := f.world.find(address); m != nil {
		return m.stage
	}
	return Off
}

// Close switches all machines off and returns when no server is left.
func (f *Fleet) Close() {
	unlock := f.world.lock()
	f.world.closed = true
	for _, m := range f.world.machines {
		f.power.off(m)
	}
	servers := f.power.servers
	unlock()
	for _, s := range servers {
		s.grpc.Stop()
		<-s.done
	}
	f.world.end()
}

// InLine returns the addresses of the machines that may have the virtual address,
// its holder first; none while there is no holder.
func (f *Fleet) InLine(virtual string) []string {
	defer f.world.lock()()
	return f.etcd.InLine(virtual)
}

// MoveVirtualIP takes the virtual address from its holder, which becomes the last in line. It gives the
// address to the candidate with that address or hostname, or to the next in line if to is empty.
func (f *Fleet) MoveVirtualIP(virtual, to string) error {
	defer f.world.lock()()
	if to == "" {
		return f.etcd.MoveVirtualIP(virtual, nil)
	}
	m := f.world.find(to)
	if m == nil {
		return fmt.Errorf("no other control plane is in line for %s", virtual)
	}
	return f.etcd.MoveVirtualIP(virtual, m.etcd)
}

// HoldLearner keeps the machine's etcd member a learner until ReleaseLearner. The
// machine may be named before it exists, by address or hostname.
func (f *Fleet) HoldLearner(machine string) {
	defer f.world.lock()()
	f.etcd.Hold(machine)
}

// ReleaseLearner allows the promotion of a held learner.
func (f *Fleet) ReleaseLearner(machine string) {
	defer f.world.lock()()
	var node *etcd.Node
	if m := f.world.find(machine); m != nil {
		node = m.etcd
	}
	f.etcd.Free(machine, node)
}

// HoldLastLearner keeps the etcd member of the last control plane a learner for d longer than it would be
// one, once; d counts from the first list of the members that a client gets meanwhile. It calls begins when
// the member could have been promoted, and ends just before it is. The last control plane is the one that
// completes those configured at that moment; a first member is none.
func (f *Fleet) HoldLastLearner(d time.Duration, begins, ends func()) {
	defer f.world.lock()()
	f.etcd.HoldLast(d, begins, ends)
}

// FailUpgrade lets the next boot of a release that an upgrade has installed fail, once: the machine returns
// with its former release. It may be named before it exists, by address or hostname.
func (f *Fleet) FailUpgrade(machine string) {
	defer f.world.lock()()
	f.power.failing[machine] = true
}

// RaiseAlarm sets an etcd alarm, "NOSPACE" or "CORRUPT", on the machine's member; "NONE" clears it.
func (f *Fleet) RaiseAlarm(machine, alarm string) error {
	kind, known := pb.EtcdMemberAlarm_AlarmType_value[alarm]
	if !known {
		return fmt.Errorf("etcd has no alarm %q", alarm)
	}
	defer f.world.lock()()
	m := f.world.find(machine)
	if m == nil || !m.etcd.RaiseAlarm(pb.EtcdMemberAlarm_AlarmType(kind)) {
		return fmt.Errorf("machine %s has no etcd member", machine)
	}
	return nil
}

// HasQuorum reports whether the etcd of the cluster with that Kubernetes CA has a quorum now. It calls no
// hook.
func (f *Fleet) HasQuorum(kubernetesCA []byte) bool {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	return f.etcd.HasQuorum(func(ca string) bool {
		return bytes.Equal(f.world.kubernetesCA(ca), kubernetesCA)
	})
}
