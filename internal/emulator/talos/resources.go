package talos

import (
	"context"
	"net/netip"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resourceService serves the resources of a request's target. Of Talos' many types
// it knows addresses, links, the machine's status and its configuration.
type resourceService struct {
	v1alpha1.UnimplementedStateServer
	world *world
}

func (s *resourceService) Get(ctx context.Context, req *v1alpha1.GetRequest) (*v1alpha1.GetResponse, error) {
	return s.target(ctx).Get(ctx, req)
}

func (s *resourceService) List(req *v1alpha1.ListRequest, out v1alpha1.State_ListServer) error {
	unlock := s.world.lock()
	resources := s.target(out.Context())
	unlock()
	return resources.List(req, out)
}

// Watch ends with the machine's system: a restart begins another one.
func (s *resourceService) Watch(req *v1alpha1.WatchRequest, out v1alpha1.State_WatchServer) error {
	unlock := s.world.lock()
	up, resources := requestOf(out.Context()).target.up, s.target(out.Context())
	unlock()
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	defer context.AfterFunc(up, cancel)()
	return resources.Watch(req, &watchStream{State_WatchServer: out, ctx: ctx})
}

type watchStream struct {
	v1alpha1.State_WatchServer
	ctx context.Context
}

func (s *watchStream) Context() context.Context { return s.ctx }

// target needs the fleet's mutex.
func (s *resourceService) target(ctx context.Context) *server.State {
	roles := requestOf(ctx).roles
	return server.NewState(state.Filter(requestOf(ctx).target.resources,
		func(_ context.Context, access state.Access) error { return readable(roles, access) }))
}

// readable refuses the reads that Talos refuses, with its texts, and those that are not emulated.
func readable(roles role.Set, access state.Access) error {
	switch {
	case access.ResourceType == config.MachineConfigType && !roles.Includes(role.Admin): // it holds keys
		return status.Error(codes.PermissionDenied, "authorization failed")
	case !access.Verb.Readonly():
		return status.Error(codes.PermissionDenied, "write access is not allowed")
	case access.ResourceType == runtime.MachineStatusType, access.ResourceType == config.MachineConfigType:
		return nil
	case access.ResourceType != network.AddressStatusType && access.ResourceType != network.LinkStatusType:
		return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
	case access.ResourceNamespace != network.NamespaceName:
		return status.Errorf(codes.PermissionDenied, "namespace %q is not supported",
			access.ResourceNamespace)
	}
	return nil
}

// bringUpNetwork creates the resources of a system that has just started: its links and its own addresses.
func (w *world) bringUpNetwork(m *machine) {
	m.resources = namespaced.NewState(inmem.Build)
	if m.down != nil {
		m.down()
	}
	m.up, m.down = context.WithCancel(w.ctx)
	w.addLink(m, "lo", network.LinkStatusSpec{Type: nethelpers.LinkLoopbck})
	uplink := network.LinkStatusSpec{Type: nethelpers.LinkEther}
	if len(m.spec.Links) > 1 {
		uplink.AltNames = m.spec.Links[1:]
	}
	w.addLink(m, m.uplink(), uplink)
	w.addAddress(m, "lo", netip.MustParsePrefix("127.0.0.1/8"))
	own := netip.MustParseAddr(m.spec.Address) // Boot has validated it
	w.addAddress(m, m.uplink(), netip.PrefixFrom(own, own.BitLen()*3/4))
}

// report replaces the machine's status.
func (w *world) report(m *machine, stage runtime.MachineStage) {
	status := runtime.NewMachineStatus()
	status.TypedSpec().Stage = stage
	if err := m.resources.Destroy(w.ctx, status.Metadata()); !state.IsNotFoundError(err) {
		w.fail(m, err)
	}
	w.fail(m, m.resources.Create(w.ctx, status))
}

// configured replaces the resource of the configuration that runs.
func (w *world) configured(m *machine) {
	now := config.NewMachineConfig(m.installed.config)
	if err := m.resources.Destroy(w.ctx, now.Metadata()); !state.IsNotFoundError(err) {
		w.fail(m, err)
	}
	w.fail(m, m.resources.Create(w.ctx, now))
}

func (w *world) addLink(m *machine, name string, spec network.LinkStatusSpec) {
	spec.LinkState, spec.OperationalState = true, nethelpers.OperStateUp
	link := network.NewLinkStatus(network.NamespaceName, name)
	*link.TypedSpec() = spec
	w.fail(m, m.resources.Create(w.ctx, link))
}

func (w *world) addAddress(m *machine, link string, address netip.Prefix) {
	a := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, address))
	a.TypedSpec().Address, a.TypedSpec().LinkName = address, link
	a.TypedSpec().Flags = nethelpers.AddressFlags(nethelpers.AddressPermanent)
	a.TypedSpec().Family = nethelpers.FamilyInet4
	if address.Addr().Is6() {
		a.TypedSpec().Family = nethelpers.FamilyInet6
	}
	w.fail(m, m.resources.Create(w.ctx, a))
}

func (w *world) dropAddress(m *machine, link string, address netip.Prefix) {
	a := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, address))
	w.fail(m, m.resources.Destroy(w.ctx, a.Metadata()))
}
