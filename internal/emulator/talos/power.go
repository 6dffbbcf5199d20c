package talos

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/google/uuid"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/apid"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/etcd"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/installer"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/journal"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
)

// power starts, configures, stops and wipes machines.
type power struct {
	world   *world
	etcd    *etcd.Etcd
	failing map[string]bool // machines whose next upgrade does not boot, by address or hostname
	servers []*endpoint     // every server since New, so that Close leaves none
}

// boot starts the machine; start follows when its delay has passed.
func (p *power) boot(m *machine, delay time.Duration) {
	p.stop(m)
	m.stage = Booting
	if m.tried != nil {
		m.installed, m.tried = m.tried, nil
	}
	if m.staged != nil {
		m.installed, m.staged = m.staged, nil
	}
	p.world.after(m, delay, func() { p.start(m) })
}

// start brings the API up, in maintenance mode or with the configuration's certificates.
func (p *power) start(m *machine) {
	if !m.awaitsSigner {
		m.runs, m.bootID, m.events = m.boots.Next, uuid.NewString(), journal.New()
		m.installing, m.proven, m.applied, m.saved = false, false, false, false
		p.etcd.Starts(m.etcd)
		m.events.Log("", "Linux version emulated, Talos "+m.runs.Release)
	}
	p.world.bringUpNetwork(m)
	m.doing = runtime.MachineStageBooting
	stage, signer := Maintenance, (*machineconfig.Config)(nil)
	if m.installed != nil {
		stage, signer = Running, p.signer(m.installed)
		p.world.configured(m)
		m.awaitsSigner = signer == nil
	}
	if m.awaitsSigner {
		return // trustd of a control plane signs for workers: startWaitingWorkers continues
	}
	if err := p.serve(m, signer); err != nil {
		p.world.fail(m, err)
		return
	}
	m.stage = stage
	switch {
	case stage == Maintenance:
		m.doing = runtime.MachineStageMaintenance
	case m.upgradeAt != "":
		p.upgradeFirst(m)
	default:
		p.world.sequence(m, "", "boot", pb.SequenceEvent_START)
		p.world.after(m, p.world.config.Delays.Services, func() { p.servicesUp(m) })
	}
	if m.controlPlane() {
		p.startWaitingWorkers()
	}
}

func (p *power) servicesUp(m *machine) {
	if m.boots.Unproven && p.fails(m) {
		p.bootFailed(m)
		return
	}
	m.ready = true
	callLater(p.world, p.world.config.Hooks.OnMachineConfigured, m.machineSpec())
	p.etcd.Resume(m.etcd)
}

// upgradeFirst installs a staged upgrade and restarts (the sequence install of a system that boots).
func (p *power) upgradeFirst(m *machine) {
	image, err := p.world.resolve(m, m.upgradeAt)
	m.upgradeAt, m.doing = "", runtime.MachineStageInstalling
	p.world.after(m, p.world.config.Delays.Install, func() {
		if err == nil && installer.Preflight(m.runs, image) == nil {
			m.boots.Install(image)
		}
		p.boot(m, p.world.config.Delays.Boot)
	})
}

// fails reports, once, whether FailUpgrade has named the machine.
func (p *power) fails(m *machine) bool {
	for _, name := range []string{m.spec.Address, m.hostname()} {
		if p.failing[name] {
			delete(p.failing, name)
			return true
		}
	}
	return false
}

// bootFailed is the end of the sequence boot with an error: the former system boots again if an upgrade has
// installed this one. The real sequence waits up to 70 minutes for its services.
func (p *power) bootFailed(m *machine) {
	m.boots.Revert()
	p.world.publish(m, "", &pb.SequenceEvent{Sequence: "boot", Error: &common.Error{
		Code: common.Code_FATAL, Message: "sequence failed: error running phase 9 in boot sequence: " +
			"task 1/1: failed, context deadline exceeded"}})
	p.leave(m, runtime.MachineStageRebooting, p.world.config.Delays.Stop,
		func() { p.boot(m, p.world.config.Delays.Boot) })
}

// leave stops what a machine runs, so that it can restart: Pods, kubelet and etcd at once. Its API answers
// until next.
func (p *power) leave(m *machine, doing runtime.MachineStage, takes time.Duration, next func()) {
	served := m.ready
	p.quiesce(m)
	m.doing = doing
	if served {
		callLater(p.world, p.world.config.Hooks.OnDown, m.spec.Address)
	}
	p.world.within(m, takes, next)
}

// restart runs the sequence reboot.
func (p *power) restart(m *machine, actor string, takes time.Duration) {
	p.world.sequence(m, actor, "reboot", pb.SequenceEvent_START)
	p.leave(m, runtime.MachineStageRebooting, takes, func() {
		for _, action := range []pb.TaskEvent_Action{pb.TaskEvent_START, pb.TaskEvent_STOP} {
			p.world.stopsAll(m, actor, action)
		}
		p.boot(m, p.world.config.Delays.Boot)
	})
}

// signer finds the configuration with the key of the CA that c trusts: its own on
// a control plane, else that of a running control plane.
func (p *power) signer(c *machineconfig.Config) *machineconfig.Config {
	if c.ControlPlane {
		return c
	}
	for _, m := range p.world.machines {
		if m.stage == Running && m.controlPlane() && m.installed.CA == c.CA {
			return m.installed
		}
	}
	return nil
}

func (p *power) startWaitingWorkers() {
	for _, m := range p.world.machines {
		if m.stage == Booting && m.awaitsSigner && p.signer(m.installed) != nil {
			p.start(m)
		}
	}
}

// quiesce stops the services and cancels pending steps.
func (p *power) quiesce(m *machine) {
	p.etcd.Resign(m.etcd)
	m.life++
	m.ready, m.awaitsSigner = false, false
	p.etcd.Stopped(m.etcd)
}

// stop takes the API down, too, at once; requests in flight finish.
func (p *power) stop(m *machine) {
	p.quiesce(m)
	if m.down != nil {
		m.down()
	}
	if m.server != nil {
		m.server.retire()
		m.server = nil
	}
}

// off is a power cut: it takes the API down and breaks requests in flight.
func (p *power) off(m *machine) {
	if m.server != nil {
		p.world.later(m.server.grpc.Stop)
	}
	p.etcd.LosePower(m.etcd)
	p.stop(m)
	m.stage = Off
}

// shutDown lets the answer to the caller out before the machine is off.
func (p *power) shutDown(m *machine) {
	p.stop(m)
	m.stage = Off
	callLater(p.world, p.world.config.Hooks.OnShutdown, m.spec.Address)
}

// endpoint is one API server. A machine gets a new one whenever it restarts
// or its certificates change, as Talos restarts apid.
type endpoint struct {
	listener net.Listener
	grpc     *grpc.Server
	done     chan struct{}
}

// serve starts the machine's API: in maintenance mode without a signer.
func (p *power) serve(m *machine, signer *machineconfig.Config) error {
	config, err := m.installed.ServerTLS(signer, m.spec.Address, m.hostname())
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(m.spec.Address, strconv.Itoa(constants.ApidPort)))
	if err != nil {
		return fmt.Errorf("apid: %w", err)
	}
	// Without client certificates, every caller is a reader and nothing is routed.
	proxy := &apid.Proxy[*machine]{Self: m, Lock: p.world.lock, Maintenance: signer == nil,
		Reach: func(node string, alone bool) (*machine, error) { return p.world.reach(m, node, alone) }}
	s := &endpoint{listener: l, done: make(chan struct{}), grpc: grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.UnaryInterceptor(proxy.Unary),
		grpc.StreamInterceptor(proxy.Stream),
	)}
	pb.RegisterMachineServiceServer(s.grpc, &machineService{world: p.world, power: p, etcd: p.etcd})
	pb.RegisterImageServiceServer(s.grpc, &imageService{world: p.world})
	pb.RegisterLifecycleServiceServer(s.grpc, &lifecycleService{world: p.world})
	storage.RegisterStorageServiceServer(s.grpc, &storageService{})
	clusterapi.RegisterClusterServiceServer(s.grpc, &clusterService{world: p.world, etcd: p.etcd})
	timeapi.RegisterTimeServiceServer(s.grpc, &timeService{})
	v1alpha1.RegisterStateServer(s.grpc, &resourceService{world: p.world})
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l) //nolint:errcheck // it ends when the listener or the server is closed
	}()
	m.server = s
	p.servers = append(p.servers, s)
	return nil
}

// retire frees the address at once and lets requests in flight finish.
func (s *endpoint) retire() {
	_ = s.listener.Close() //nolint:errcheck // the server may have closed it
	go s.grpc.GracefulStop()
}
