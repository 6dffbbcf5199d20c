package talos

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/resources"
)

// resourceService serves the resources of a request's target.
type resourceService struct {
	v1alpha1.UnimplementedStateServer
	world *world
}

func (s *resourceService) Get(ctx context.Context, req *v1alpha1.GetRequest) (*v1alpha1.GetResponse, error) {
	return s.target(ctx).Get(ctx, req)
}

func (s *resourceService) List(req *v1alpha1.ListRequest, out v1alpha1.State_ListServer) error {
	unlock := s.world.lock()
	served := s.target(out.Context())
	unlock()
	return served.List(req, out)
}

// Watch ends with the machine's system: a restart begins another one.
func (s *resourceService) Watch(req *v1alpha1.WatchRequest, out v1alpha1.State_WatchServer) error {
	unlock := s.world.lock()
	up, served := requestOf(out.Context()).Target.up, s.target(out.Context())
	unlock()
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	defer context.AfterFunc(up, cancel)()
	return served.Watch(req, &watchStream{State_WatchServer: out, ctx: ctx})
}

type watchStream struct {
	v1alpha1.State_WatchServer
	ctx context.Context
}

func (s *watchStream) Context() context.Context { return s.ctx }

// target needs the fleet's mutex.
func (s *resourceService) target(ctx context.Context) *server.State {
	r := requestOf(ctx)
	return r.Target.resources.Serve(r.Roles)
}

// bringUpNetwork creates the resources of a system that has just started: its links and its own addresses.
func (w *world) bringUpNetwork(m *machine) {
	m.resources = resources.New(w.ctx, func(err error) { w.fail(m, err) })
	if m.down != nil {
		m.down()
	}
	m.up, m.down = context.WithCancel(w.ctx)
	m.reported, m.described = runtime.MachineStatusSpec{}, facts{}
	m.services = map[string]*pb.ServiceInfo{}
	if m.runs.Schematic != "" {
		m.resources.AddSchematic(m.runs.Schematic)
	}
	m.resources.AddLink("lo", network.LinkStatusSpec{Type: nethelpers.LinkLoopbck})
	cards := m.cards()
	if len(cards) == 0 {
		cards = []Card{{Names: []string{m.uplink()}}}
	}
	for _, card := range cards {
		m.resources.AddLink(card.Names[0], card.status())
	}
	m.resources.AddAddress("lo", netip.MustParsePrefix("127.0.0.1/8"))
	own := netip.MustParseAddr(m.spec.Address) // Boot has validated it
	m.resources.AddAddress(m.uplink(), netip.PrefixFrom(own, own.BitLen()*3/4))
	for _, further := range m.further() {
		m.resources.AddAddress(m.uplink(), further)
	}
}

// further are a machine's other addresses: those that it has anyway, and those of its configuration.
func (m *machine) further() []netip.Prefix {
	all := slices.Clone(m.spec.Further)
	if m.installed != nil {
		for _, link := range m.installed.Provider.NetworkCommonLinkConfigs() {
			for _, address := range link.Addresses() {
				all = append(all, address.Address())
			}
		}
	}
	return all
}

// configured replaces the resources of the configuration that runs, and of the one that a caller has brought
// to the disk since the machine's start: the next one if it is staged, the former one if another is tried.
func (w *world) configured(m *machine) {
	now := map[string]*machineconfig.Config{config.ActiveID: m.installed}
	if m.saved {
		now[config.PersistentID] = m.persistent()
	}
	for id, c := range now {
		m.resources.Replace(config.NewMachineConfigWithID(c.Provider, id))
	}
}

// persistent is the configuration on the disk.
func (m *machine) persistent() *machineconfig.Config { return cmp.Or(m.staged, m.tried, m.installed) }
