package talos

import (
	"context"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
)

// machine is one Machine and what became of it. The fleet's mutex guards it.
type machine struct {
	Machine
	stage     Stage
	life      int // counts starts and power cuts: a pending step of an earlier life is void
	timers    []func() bool
	server    *apid
	resources state.CoreState // of the system that runs
	up        context.Context // as long as it runs
	down      context.CancelFunc
	ready     bool // container runtime and kubelet are up: bootstrap is available

	// What the disks hold.
	installed *installed // the configuration in force; nil on a blank disk
	staged    *installed // takes over at the next start
	etcd      *member

	announcing   bool // OnBootstrap is due
	campaigns    bool // it asks for its virtual addresses, or is about to
	awaitsSigner bool // a worker that has its configuration and no certificate yet
}

func (m *machine) hostname() string {
	if m.installed != nil && m.installed.hostname != "" {
		return m.installed.hostname
	}
	return m.Name
}

func (m *machine) controlPlane() bool { return m.installed != nil && m.installed.controlPlane }

// boot starts the machine; start follows when its delay has passed.
func (f *Fleet) boot(m *machine, delay time.Duration) {
	f.stop(m)
	m.stage = Booting
	if m.staged != nil {
		m.installed, m.staged = m.staged, nil
	}
	f.after(m, delay, func() { f.start(m) })
}

// start brings the API up, in maintenance mode or with the configuration's certificates.
func (f *Fleet) start(m *machine) {
	f.bringUpNetwork(m)
	if m.installed == nil {
		if f.serve(m, maintenanceTLS) {
			m.stage = Maintenance
		}
		return
	}
	signer := f.signer(m.installed)
	if m.awaitsSigner = signer == nil; m.awaitsSigner {
		return // trustd of a control plane signs for workers: startWaitingWorkers goes on
	}
	if !f.serve(m, m.installed.serverTLS(signer)) {
		return
	}
	m.stage = Running
	f.after(m, f.config.Delays.Services, func() { f.servicesUp(m) })
	if m.controlPlane() {
		f.startWaitingWorkers()
	}
}

func (f *Fleet) servicesUp(m *machine) {
	m.ready = true
	if hook := f.config.Hooks.OnMachineConfigured; hook != nil {
		spec := f.machineSpec(m)
		f.later(func() { hook(spec) })
	}
	f.resumeEtcd(m)
}

// signer finds the configuration that holds the key of the CA that c trusts:
// its own on a control plane, else that of a control plane that is up.
func (f *Fleet) signer(c *installed) *installed {
	if c.controlPlane {
		return c
	}
	for _, m := range f.machines {
		if m.stage == Running && m.controlPlane() && m.installed.ca == c.ca {
			return m.installed
		}
	}
	return nil
}

func (f *Fleet) startWaitingWorkers() {
	for _, m := range f.machines {
		if m.stage == Booting && m.awaitsSigner && f.signer(m.installed) != nil {
			f.start(m)
		}
	}
}

// stop takes the API away at once and voids what is pending; requests in flight finish.
func (f *Fleet) stop(m *machine) {
	f.resign(m)
	if m.down != nil {
		m.down()
	}
	m.life++
	for _, stop := range m.timers {
		stop()
	}
	m.timers = nil
	m.ready, m.announcing, m.awaitsSigner = false, false, false
	if m.server != nil {
		m.server.retire()
		m.server = nil
	}
	if m.etcd != nil {
		f.endSessionsWithoutQuorum(m.etcd.cluster)
	}
}

// powerOff takes the API away and breaks what was in flight.
func (f *Fleet) powerOff(m *machine) {
	if m.server != nil {
		f.later(m.server.grpc.Stop)
	}
	f.vanish(m)
	f.stop(m)
	m.stage = Off
}

// wipe empties the machine's disks. The etcd cluster still counts its member.
func (f *Fleet) wipe(m *machine) {
	ca := ""
	if m.installed != nil {
		ca = m.installed.ca
	}
	m.installed, m.staged, m.etcd = nil, nil, nil
	for _, other := range f.machines {
		if other.etcd != nil && other.installed.ca == ca {
			return
		}
	}
	delete(f.bootstrapped, ca) // no data is left: the same secrets may found a cluster anew
}
