package talos

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resourceService serves the resources of whichever machine the door has let
// the request through to. Of Talos' many types it knows the addresses and links.
type resourceService struct {
	v1alpha1.UnimplementedStateServer
	fleet *Fleet
}

func (s *resourceService) Get(ctx context.Context, req *v1alpha1.GetRequest) (*v1alpha1.GetResponse, error) {
	return s.target(ctx).Get(ctx, req)
}

func (s *resourceService) List(req *v1alpha1.ListRequest, out v1alpha1.State_ListServer) error {
	return s.target(out.Context()).List(req, out)
}

// Watch ends with the machine's system: what comes after a restart is another one's.
func (s *resourceService) Watch(req *v1alpha1.WatchRequest, out v1alpha1.State_WatchServer) error {
	s.fleet.mu.Lock()
	up := requestOf(out.Context()).target.up
	s.fleet.unlock()
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	defer context.AfterFunc(up, cancel)()
	return s.target(out.Context()).Watch(req, &watchStream{State_WatchServer: out, ctx: ctx})
}

type watchStream struct {
	v1alpha1.State_WatchServer
	ctx context.Context
}

func (s *watchStream) Context() context.Context { return s.ctx }

func (s *resourceService) target(ctx context.Context) *server.State {
	s.fleet.mu.Lock()
	defer s.fleet.unlock()
	return server.NewState(state.Filter(requestOf(ctx).target.resources, readable))
}

// readable refuses what Talos refuses, in its words, and what is not emulated.
func readable(_ context.Context, access state.Access) error {
	switch {
	case !access.Verb.Readonly():
		return status.Error(codes.PermissionDenied, "write access is not allowed")
	case access.ResourceType != network.AddressStatusType && access.ResourceType != network.LinkStatusType:
		return status.Error(codes.PermissionDenied, fmt.Sprintf("resource type %q is not supported", access.ResourceType))
	case access.ResourceNamespace != network.NamespaceName:
		return status.Error(codes.PermissionDenied, fmt.Sprintf("namespace %q is not supported", access.ResourceNamespace))
	}
	return nil
}

// bringUpNetwork gives the machine the resources of a system that has just
// started: its links and its own addresses.
func (f *Fleet) bringUpNetwork(m *machine) {
	m.resources = inmem.NewState(network.NamespaceName)
	if m.down != nil {
		m.down()
	}
	m.up, m.down = context.WithCancel(f.ctx)
	f.addLink(m, "lo", network.LinkStatusSpec{Type: nethelpers.LinkLoopbck})
	uplink := network.LinkStatusSpec{Type: nethelpers.LinkEther}
	if len(m.Links) > 1 {
		uplink.AltNames = m.Links[1:]
	}
	f.addLink(m, m.uplink(), uplink)
	f.addAddress(m, "lo", netip.MustParsePrefix("127.0.0.1/8"))
	own := netip.MustParseAddr(m.Address) // Boot has judged it
	f.addAddress(m, m.uplink(), netip.PrefixFrom(own, own.BitLen()*3/4))
}

func (f *Fleet) addLink(m *machine, name string, spec network.LinkStatusSpec) {
	spec.LinkState, spec.OperationalState = true, nethelpers.OperStateUp
	link := network.NewLinkStatus(network.NamespaceName, name)
	*link.TypedSpec() = spec
	if err := m.resources.Create(f.ctx, link); err != nil {
		f.trouble(m, fmt.Errorf("link %s: %w", name, err))
	}
}

func (f *Fleet) addAddress(m *machine, link string, address netip.Prefix) {
	a := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, address))
	a.TypedSpec().Address, a.TypedSpec().LinkName = address, link
	a.TypedSpec().Flags = nethelpers.AddressFlags(nethelpers.AddressPermanent)
	a.TypedSpec().Family = nethelpers.FamilyInet4
	if address.Addr().Is6() {
		a.TypedSpec().Family = nethelpers.FamilyInet6
	}
	if err := m.resources.Create(f.ctx, a); err != nil {
		f.trouble(m, fmt.Errorf("address %s: %w", address, err))
	}
}

func (f *Fleet) dropAddress(m *machine, link string, address netip.Prefix) {
	a := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, address))
	if err := m.resources.Destroy(f.ctx, a.Metadata()); err != nil {
		f.trouble(m, fmt.Errorf("address %s: %w", address, err))
	}
}
