package talos

import (
	"cmp"
	"context"
	"net"
	"strings"
	"sync"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/etcd"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/installer"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/journal"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/resources"
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
	server    *endpoint
	resources *resources.State // of the running system
	up        context.Context  // as long as it runs
	down      context.CancelFunc
	ready     bool // container runtime and kubelet are up: bootstrap is available

	// The system that runs has these, and loses them with its restart.
	runs       installer.System
	bootID     string
	doing      runtime.MachineStage // follows from the sequence that it runs
	reported   runtime.MachineStatusSpec
	described  facts
	services   map[string]*pb.ServiceInfo // with what has happened to them
	events     *journal.Journal
	installing bool                  // an installer runs beside it
	applied    bool                  // it restarts for a configuration
	proven     bool                  // it was running and ready
	saved      bool                  // a caller has changed the configuration on the disk
	tried      *machineconfig.Config // the configuration in force is tried; this one returns

	// The disks hold these.
	boots     installer.BootEntries
	upgradeAt string                      // the installer that it runs first when it starts: a staged upgrade
	images    map[string]installer.System // installers that were pulled, by each of their names
	installed *machineconfig.Config       // the configuration in force; nil on a blank disk
	staged    *machineconfig.Config       // comes into force at the next start

	etcd         *etcd.Node        // its part in etcd, most of which the disk has
	awaitsSigner bool              // a worker that has its configuration and no certificate yet
	declared     map[string]string // why it is not ready, by the names of conditions
}

func (m *machine) hostname() string {
	if m.installed != nil && m.installed.Hostname != "" {
		return m.installed.Hostname
	}
	return m.spec.Name
}

func (m *machine) controlPlane() bool { return m.installed != nil && m.installed.ControlPlane }

// uplink is the machine's network link.
func (m *machine) uplink() string {
	if cards := m.cards(); len(cards) > 0 {
		return cards[0].Names[0]
	}
	return "ens18"
}

// blank is what a machine's new disk boots, or the ISO in its drive.
func (m *machine) blank() installer.BootEntries {
	return installer.BootEntries{Next: installer.System{Release: cmp.Or(m.spec.Version, installer.ISO),
		Schematic: m.spec.Schematic}}
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

// reach returns the machine that one's apid would connect to for node, or the error of that connection. alone
// says that the request has no other target.
func (w *world) reach(from *machine, node string, alone bool) (*machine, error) {
	defer w.lock()()
	if !from.controlPlane() {
		// A worker's apid has no client certificate of its own.
		if alone && node == from.spec.Address {
			return from, nil
		}
		return nil, status.Error(codes.PermissionDenied, "no request forwarding")
	}
	if _, _, err := net.SplitHostPort(node); node == "" || err == nil {
		return nil, status.Errorf(codes.Internal, "invalid target %q", node)
	}
	refuse := func(format string, args ...any) (*machine, error) {
		format = `connection error: desc = "transport: ` + format + `"`
		return nil, status.Errorf(codes.Unavailable, format, args...)
	}
	const dial = "Error while dialing: dial tcp %s:%d: connect: "
	m := w.find(node)
	switch {
	case m == nil && strings.ContainsFunc(node, func(r rune) bool { return r >= 'g' && r <= 'z' }):
		return nil, status.Error(codes.Unavailable, "name resolver error: produced zero addresses")
	case m == nil || m.stage == Off:
		return refuse(dial+"no route to host", node, constants.ApidPort)
	case m.stage == Booting:
		return refuse(dial+"connection refused", node, constants.ApidPort)
	case m.stage == Maintenance || m.installed.CA != from.installed.CA:
		return refuse("authentication handshake failed: tls: failed to verify certificate: x509: " +
			"certificate signed by unknown authority")
	}
	return m, nil
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

// publish adds an event of the machine's system. actor is the id of the order that led to it; empty if none.
func (w *world) publish(m *machine, actor string, payload proto.Message) {
	w.published++
	w.fail(m, m.events.Publish(w.published, actor, payload))
}

func (w *world) sequence(m *machine, actor, name string, action pb.SequenceEvent_Action) {
	w.publish(m, actor, &pb.SequenceEvent{Sequence: name, Action: action})
}

// stopsAll is the task by which talosctl knows that a machine goes down.
func (w *world) stopsAll(m *machine, actor string, action pb.TaskEvent_Action) {
	w.publish(m, actor, &pb.TaskEvent{Task: "stopAllServices", Action: action})
}

// machineSpec is the node that a configured machine's kubelet would register.
func (m *machine) machineSpec() MachineSpec {
	spec := m.installed.MachineSpec(m.spec.Address, m.hostname())
	spec.Further, spec.TalosVersion = m.further(), m.runs.Release
	return spec
}
