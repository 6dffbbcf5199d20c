package talos

import (
	"cmp"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// power starts, configures, stops and wipes machines.
type power struct {
	world   *world
	etcd    *etcd
	servers []*apid // every server since New, so that Close leaves none
}

// boot starts the machine; start follows when its delay has passed.
func (p *power) boot(m *machine, delay time.Duration) {
	p.stop(m)
	m.stage = Booting
	if m.staged != nil {
		m.installed, m.staged = m.staged, nil
	}
	p.world.after(m, delay, func() { p.start(m) })
}

// start brings the API up, in maintenance mode or with the configuration's certificates.
func (p *power) start(m *machine) {
	p.world.bringUpNetwork(m)
	p.world.report(m, runtime.MachineStageBooting)
	stage, signer := Maintenance, (*installed)(nil)
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
	if stage == Running {
		p.world.after(m, p.world.config.Delays.Services, func() { p.servicesUp(m) })
	}
	if m.controlPlane() {
		p.startWaitingWorkers()
	}
}

func (p *power) servicesUp(m *machine) {
	m.ready = true
	p.world.report(m, runtime.MachineStageRunning)
	callLater(p.world, p.world.config.Hooks.OnMachineConfigured, p.world.machineSpec(m))
	p.etcd.resume(m)
}

// signer finds the configuration with the key of the CA that c trusts: its own on
// a control plane, else that of a running control plane.
func (p *power) signer(c *installed) *installed {
	if c.controlPlane {
		return c
	}
	for _, m := range p.world.machines {
		if m.stage == Running && m.controlPlane() && m.installed.ca == c.ca {
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

// stop takes the API down at once and cancels pending steps; requests in flight finish.
func (p *power) stop(m *machine) {
	p.etcd.resign(m)
	if m.down != nil {
		m.down()
	}
	m.life++
	m.ready, m.announcing, m.awaitsSigner = false, false, false
	if m.server != nil {
		m.server.retire()
		m.server = nil
	}
	if m.etcd != nil {
		p.etcd.endSessionsWithoutQuorum(m.etcd.cluster)
	}
}

// off is a power cut: it takes the API down and breaks requests in flight.
func (p *power) off(m *machine) {
	if m.server != nil {
		p.world.later(m.server.grpc.Stop)
	}
	p.etcd.losePower(m)
	p.stop(m)
	m.stage = Off
}

// shutDown lets the answer to the caller out before the machine is off.
func (p *power) shutDown(m *machine) {
	p.stop(m)
	m.stage = Off
	callLater(p.world, p.world.config.Hooks.OnShutdown, m.spec.Address)
}

// wipe empties the machine's disks. The etcd cluster still counts its member.
func (p *power) wipe(m *machine) {
	ca := ""
	if m.installed != nil {
		ca = m.installed.ca
	}
	m.installed, m.staged, m.etcd = nil, nil, nil
	m.release = cmp.Or(m.spec.Version, iso)
	hasData := func(x *machine) bool { return x.etcd != nil && x.installed.ca == ca }
	if !slices.ContainsFunc(p.world.machines, hasData) {
		delete(p.etcd.announced, ca) // no data is left: the same secrets may found a new cluster
	}
}

// apply brings a configuration into force.
func (p *power) apply(m *machine, c *installed, mode pb.ApplyConfigurationRequest_Mode) {
	const staged, reboot = pb.ApplyConfigurationRequest_STAGED, pb.ApplyConfigurationRequest_REBOOT
	if mode == staged || mode == reboot || m.installed == nil {
		m.staged = c
	}
	switch {
	case mode == staged:
	case m.installed == nil:
		if m.spec.Version == "" {
			m.release = cmp.Or(imageTag(c.config.Machine().Install().Image()), iso)
		}
		p.boot(m, p.world.config.Delays.Install)
	case mode == reboot:
		p.boot(m, p.world.config.Delays.Boot)
	default:
		moved := !slices.Equal(virtualIPs(m.installed.config), virtualIPs(c.config))
		if moved {
			p.etcd.resign(m)
		}
		before := p.world.machineSpec(m)
		m.installed = c
		p.world.configured(m)
		if moved {
			p.etcd.advance()
		}
		// A changed image of the kubelet or the API server is pulled and started at once, as is the kubelet
		// with other labels and taints; Talos itself stays until it is upgraded.
		if spec := p.world.machineSpec(m); m.ready && !reflect.DeepEqual(before, spec) {
			callLater(p.world, p.world.config.Hooks.OnMachineConfigured, spec)
		}
	}
}

// apid is one listening API server. A machine gets a new one whenever it restarts
// or its certificates change, as Talos restarts apid.
type apid struct {
	listener net.Listener
	grpc     *grpc.Server
	done     chan struct{}
}

// serve starts the machine's API: in maintenance mode without a signer.
func (p *power) serve(m *machine, signer *installed) error {
	config, err := apidTLS(m, signer)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(m.spec.Address, strconv.Itoa(constants.ApidPort)))
	if err != nil {
		return fmt.Errorf("apid: %w", err)
	}
	// Without client certificates, every caller is a reader and nothing is routed.
	proxy := &proxy{world: p.world, machine: m, maintenance: signer == nil}
	s := &apid{listener: l, done: make(chan struct{}), grpc: grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.UnaryInterceptor(proxy.unary),
		grpc.StreamInterceptor(proxy.stream),
	)}
	pb.RegisterMachineServiceServer(s.grpc, &machineService{world: p.world, power: p, etcd: p.etcd})
	storage.RegisterStorageServiceServer(s.grpc, &storageService{})
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
func (s *apid) retire() {
	_ = s.listener.Close() //nolint:errcheck // the server may have closed it
	go s.grpc.GracefulStop()
}
