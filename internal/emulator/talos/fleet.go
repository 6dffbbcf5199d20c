// Package talos emulates Talos Linux machines, without Talos: real gRPC and TLS
// on each machine's own address, real machine configurations, certificates and
// kubeconfigs, the real order of events and the real error texts.
//
// A Fleet is a set of machines that can reach each other. A machine boots into
// maintenance mode, takes a configuration from anyone, comes back with a
// certificate of that configuration's CA and from then on obeys only clients of
// that CA. Control planes that share the CA form an etcd cluster after one of
// them is bootstrapped. No Kubernetes runs: Hooks carry what is needed to start one.
//
// Everything that takes time runs through Config.AfterFunc, and a power cycle
// voids what the machine had pending, so time can be driven by a test. One mutex
// guards the whole fleet; hooks run after it is released.
package talos

// Fleet is a set of emulated machines.
type Fleet struct{ config Config }

// New returns a fleet without machines.
func New(c Config) *Fleet { return &Fleet{config: c} }

// Boot switches a machine on. A machine whose address is known keeps its disks;
// a new one has blank disks.
func (f *Fleet) Boot(m Machine) error { return nil }

// Halt cuts a machine's power. Its disks stay.
func (f *Fleet) Halt(address string) {}

// Remove cuts a machine's power and throws its disks away.
func (f *Fleet) Remove(address string) {}

// Stage returns how far the machine has come; Off for an unknown one.
func (f *Fleet) Stage(address string) Stage { return Off }

// HoldLearner keeps the machine's etcd member a learner until ReleaseLearner.
// The machine may be named before it exists, by address or hostname.
func (f *Fleet) HoldLearner(machine string) {}

// ReleaseLearner lets a held learner be promoted.
func (f *Fleet) ReleaseLearner(machine string) {}

// RaiseAlarm sets an etcd alarm, "NOSPACE" or "CORRUPT", on the machine's member.
func (f *Fleet) RaiseAlarm(machine, alarm string) error { return nil }

// Close switches all machines off and returns when no server is left.
func (f *Fleet) Close() {}
