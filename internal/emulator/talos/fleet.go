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

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// Fleet is a set of emulated machines.
type Fleet struct {
	config Config
	ctx    context.Context // until Close
	end    context.CancelFunc

	mu           sync.Mutex
	machines     []*machine // in the order of their first Boot
	held         map[string]bool
	lastLearner  *heldLearner
	bootstrapped map[string]bool // the clusters, by CA, that OnBootstrap has heard of
	servers      []*apid         // every server since New, so that Close leaves none
	pending      []func()        // what unlock does
	closed       bool
}

// New returns a fleet without machines.
func New(c Config) *Fleet {
	if c.Port == 0 {
		c.Port = constants.ApidPort
	}
	if c.TalosVersion == "" {
		c.TalosVersion = "v1.13.0"
	}
	if c.AfterFunc == nil {
		c.AfterFunc = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	f := &Fleet{config: c, held: map[string]bool{}, bootstrapped: map[string]bool{}}
	f.ctx, f.end = context.WithCancel(context.Background())
	return f
}

// Boot switches a machine on. A machine whose address is known keeps its disks;
// a new one has blank disks.
func (f *Fleet) Boot(spec Machine) error {
	return f.switchOn(spec, func(m *machine) { f.boot(m, f.config.Delays.Boot) })
}

// Place puts a machine there that was switched on long ago: its API answers when
// Place returns.
func (f *Fleet) Place(spec Machine) error {
	return f.switchOn(spec, f.start)
}

func (f *Fleet) switchOn(spec Machine, begin func(*machine)) error {
	if _, err := netip.ParseAddr(spec.Address); err != nil {
		return fmt.Errorf("machine %q: %w", spec.Name, err)
	}
	f.mu.Lock()
	defer f.unlock()
	if f.closed {
		return errors.New("fleet is closed")
	}
	m := f.find(spec.Address)
	switch {
	case m == nil:
		m = &machine{}
		f.machines = append(f.machines, m)
	case m.stage != Off:
		return fmt.Errorf("machine %s is on already", spec.Address)
	}
	m.Machine = spec
	begin(m)
	return nil
}

// Halt cuts a machine's power. Its disks stay.
func (f *Fleet) Halt(address string) {
	f.mu.Lock()
	defer f.unlock()
	if m := f.find(address); m != nil {
		f.powerOff(m)
	}
}

// Remove cuts a machine's power and throws its disks away.
func (f *Fleet) Remove(address string) {
	f.mu.Lock()
	defer f.unlock()
	m := f.find(address)
	if m == nil {
		return
	}
	f.powerOff(m)
	f.machines = slices.DeleteFunc(f.machines, func(x *machine) bool { return x == m })
	f.wipe(m)
}

// Stage returns how far the machine has come; Off for an unknown one.
func (f *Fleet) Stage(address string) Stage {
	f.mu.Lock()
	defer f.unlock()
	if m := f.find(address); m != nil {
		return m.stage
	}
	return Off
}

// Close switches all machines off and returns when no server is left.
func (f *Fleet) Close() {
	f.mu.Lock()
	f.closed = true
	for _, m := range f.machines {
		f.powerOff(m)
	}
	servers := f.servers
	f.unlock()
	for _, s := range servers {
		s.grpc.Stop()
		<-s.done
	}
	f.end()
}

// find returns the machine that an address or a hostname names.
func (f *Fleet) find(name string) *machine {
	for _, m := range f.machines {
		if m.Address == name || (name != "" && m.hostname() == name) {
			return m
		}
	}
	return nil
}

// later keeps fn until the lock is released. Hooks go this way.
func (f *Fleet) later(fn func()) { f.pending = append(f.pending, fn) }

func (f *Fleet) unlock() {
	pending := f.pending
	f.pending = nil
	f.mu.Unlock()
	for _, fn := range pending {
		fn()
	}
}

// after runs fn under the lock once d has passed, unless the machine has lost
// power or restarted in between.
func (f *Fleet) after(m *machine, d time.Duration, fn func()) {
	life := m.life
	stop := f.config.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.unlock()
		if m.life == life && !f.closed {
			fn()
		}
	})
	m.timers = append(m.timers, stop)
}

// inTime runs fn under the lock once d has passed, whatever the machines do meanwhile.
func (f *Fleet) inTime(d time.Duration, fn func()) {
	f.config.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.unlock()
		if !f.closed {
			fn()
		}
	})
}

func (f *Fleet) trouble(m *machine, err error) {
	if hook := f.config.Hooks.OnError; hook != nil {
		address := m.Address
		f.later(func() { hook(address, err) })
	}
}
