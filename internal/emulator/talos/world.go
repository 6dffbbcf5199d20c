package talos

import (
	"context"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// world is the state that the parts of a fleet share. Its mutex guards all of them.
type world struct {
	config Config
	ctx    context.Context // until Close
	end    context.CancelFunc

	mu       sync.Mutex
	machines []*machine // in the order of their first Boot
	refresh  func()     // brings what machines report about themselves up to date
	pending  []func()   // runs once the mutex is released
	closed   bool

	published uint64 // events of all machines
}

// machine is one Machine and its state.
type machine struct {
	spec      Machine
	stage     Stage
	life      int // counts starts and power cuts: a pending step of an earlier life is void
	server    *apid
	resources state.CoreState // of the running system
	up        context.Context // as long as it runs
	down      context.CancelFunc
	ready     bool // container runtime and kubelet are up: bootstrap is available

	// The system that runs has these, and loses them with its restart.
	runs       system
	bootID     string
	doing      runtime.MachineStage // follows from the sequence that it runs
	reported   runtime.MachineStatusSpec
	described  facts
	services   map[string]*pb.ServiceInfo // with what has happened to them
	events     *events
	installing bool       // an installer runs beside it
	applied    bool       // it restarts for a configuration
	proven     bool       // it was running and ready
	leftEtcd   bool       // its etcd has stopped for good
	saved      bool       // a caller has changed the configuration on the disk
	tried      *installed // the configuration in force is tried; this one returns

	// The disks hold these.
	boots     bootEntries
	upgradeAt string            // the installer that it runs first when it starts: a staged upgrade
	images    map[string]system // installers that were pulled, by each of their names
	installed *installed        // the configuration in force; nil on a blank disk
	staged    *installed        // comes into force at the next start
	etcd      *member
	snapshot  []byte    // of etcd, that a caller has uploaded
	recovery  *recovery // of etcd from it, until it has succeeded

	announcing   bool              // OnBootstrap is due
	campaigns    bool              // it competes for its virtual addresses, or is about to
	awaitsSigner bool              // a worker that has its configuration and no certificate yet
	declared     map[string]string // why it is not ready, by the names of conditions
}

func (m *machine) hostname() string {
	if m.installed != nil && m.installed.hostname != "" {
		return m.installed.hostname
	}
	return m.spec.Name
}

func (m *machine) controlPlane() bool { return m.installed != nil && m.installed.controlPlane }

// uplink is the machine's network link.
func (m *machine) uplink() string {
	if cards := m.cards(); len(cards) > 0 {
		return cards[0].Names[0]
	}
	return "ens18"
}

// find returns the machine that an address or a hostname names.
func (w *world) find(name string) *machine {
	for _, m := range w.machines {
		if m.spec.Address == name || (name != "" && m.hostname() == name) {
			return m
		}
	}
	return nil
}

// lock takes the mutex. unlock brings the machines' status up to date, releases the mutex, and then runs the
// pending functions.
func (w *world) lock() (unlock func()) {
	w.mu.Lock()
	return func() {
		if !w.closed {
			w.refresh()
		}
		pending := w.pending
		w.pending = nil
		w.mu.Unlock()
		for _, fn := range pending {
			fn()
		}
	}
}

// later keeps fn until the mutex is released, as hooks require.
func (w *world) later(fn func()) { w.pending = append(w.pending, fn) }

// callLater calls a hook, if it is set, once the mutex is released.
func callLater[T any](w *world, hook func(T), value T) {
	if hook != nil {
		w.later(func() { hook(value) })
	}
}

// after runs fn under the mutex once d has passed, unless the machine has lost power or restarted in between.
func (w *world) after(m *machine, d time.Duration, fn func()) {
	life := m.life
	w.inTime(d, func() {
		if m.life == life {
			fn()
		}
	})
}

// within runs fn under the mutex once d has passed, as after does, and closes the channel then.
func (w *world) within(m *machine, d time.Duration, fn func()) <-chan struct{} {
	done := make(chan struct{})
	if d == 0 {
		fn()
		close(done)
		return done
	}
	w.after(m, d, func() {
		fn()
		close(done)
	})
	return done
}

// inTime runs fn under the mutex once d has passed, independent of the machines.
func (w *world) inTime(d time.Duration, fn func()) {
	w.config.AfterFunc(d, func() {
		defer w.lock()()
		if !w.closed {
			fn()
		}
	})
}

// fail reports an error, if there is one, that no client can get.
func (w *world) fail(m *machine, err error) {
	if hook := w.config.Hooks.OnError; hook != nil && err != nil {
		address := m.spec.Address
		w.later(func() { hook(address, err) })
	}
}
