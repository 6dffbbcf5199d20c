package talos

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	v1alpha1res "github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resourceService serves the resources of a request's target. Of Talos' many types it knows those in kinds.
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

// kinds are the types of resources that the emulator has.
var kinds = []meta.ResourceDefinitionProvider{meta.ResourceDefinitionExtension{}, meta.NamespaceExtension{},
	network.AddressStatusExtension{}, network.LinkStatusExtension{}, network.HostnameStatusExtension{},
	network.NodeAddressExtension{}, runtime.MachineStatusExtension{}, runtime.ExtensionStatusExtension{},
	runtime.DiagnosticExtension{}, block.VolumeStatusExtension{}, v1alpha1res.ServiceExtension{},
	cluster.MemberExtension{}, etcdres.MemberExtension{}, k8s.NodenameExtension{}, k8s.NodeStatusExtension{},
	k8s.StaticPodStatusExtension{}, k8s.BootstrapManifestsConfigExtension{}, secrets.OSRootExtension{},
	secrets.KubernetesRootExtension{}, timeres.StatusExtension{}, (*config.MachineType)(nil),
	(*config.MachineConfig)(nil)}

// namespaces are those of the kinds.
var namespaces = []string{meta.NamespaceName, network.NamespaceName, runtime.NamespaceName,
	cluster.NamespaceName, config.NamespaceName, etcdres.NamespaceName, k8s.NamespaceName,
	k8s.ControlPlaneNamespaceName, secrets.NamespaceName}

// readable refuses the reads that Talos refuses, with its texts (internal/app/resources/access.go), and those
// that are not emulated.
func readable(roles role.Set, access state.Access) error {
	of := slices.IndexFunc(kinds, func(k meta.ResourceDefinitionProvider) bool {
		return k.ResourceDefinition().Type == access.ResourceType
	})
	switch {
	case !access.Verb.Readonly():
		return status.Error(codes.PermissionDenied, "write access is not allowed")
	case of < 0:
		return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
	case kinds[of].ResourceDefinition().Sensitivity == meta.Sensitive && !roles.Includes(role.Admin):
		return notAuthorized()
	case !slices.Contains(namespaces, access.ResourceNamespace):
		return status.Errorf(codes.PermissionDenied, "namespace %q is not supported",
			access.ResourceNamespace)
	}
	return nil
}

// addDefinitions creates the resources by which talosctl finds types and their aliases.
func (w *world) addDefinitions(m *machine) {
	for _, kind := range kinds {
		definition, err := meta.NewResourceDefinition(kind.ResourceDefinition())
		if err == nil {
			err = m.resources.Create(w.ctx, definition)
		}
		w.fail(m, err)
	}
	for _, name := range namespaces {
		w.fail(m, m.resources.Create(w.ctx, meta.NewNamespace(name, meta.NamespaceSpec{})))
	}
}

// bringUpNetwork creates the resources of a system that has just started: its links and its own addresses.
func (w *world) bringUpNetwork(m *machine) {
	m.resources = namespaced.NewState(inmem.Build)
	if m.down != nil {
		m.down()
	}
	m.up, m.down = context.WithCancel(w.ctx)
	m.reported, m.described = runtime.MachineStatusSpec{}, facts{}
	m.services = map[string]*pb.ServiceInfo{}
	w.addDefinitions(m)
	w.addExtensions(m)
	w.addLink(m, "lo", network.LinkStatusSpec{Type: nethelpers.LinkLoopbck})
	cards := m.cards()
	if len(cards) == 0 {
		cards = []Card{{Names: []string{m.uplink()}}}
	}
	for _, card := range cards {
		w.addLink(m, card.Names[0], card.status())
	}
	w.addAddress(m, "lo", netip.MustParsePrefix("127.0.0.1/8"))
	own := netip.MustParseAddr(m.spec.Address) // Boot has validated it
	w.addAddress(m, m.uplink(), netip.PrefixFrom(own, own.BitLen()*3/4))
	for _, further := range m.further() {
		w.addAddress(m, m.uplink(), further)
	}
}

// further are a machine's other addresses: those that it has anyway, and those of its configuration.
func (m *machine) further() []netip.Prefix {
	all := slices.Clone(m.spec.Further)
	if m.installed != nil {
		for _, link := range m.installed.config.NetworkCommonLinkConfigs() {
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
	now := map[string]*installed{config.ActiveID: m.installed}
	if m.saved {
		now[config.PersistentID] = m.persistent()
	}
	for id, c := range now {
		now := config.NewMachineConfigWithID(c.config, id)
		if err := m.resources.Destroy(w.ctx, now.Metadata()); !state.IsNotFoundError(err) {
			w.fail(m, err)
		}
		w.fail(m, m.resources.Create(w.ctx, now))
	}
}

// persistent is the configuration on the disk.
func (m *machine) persistent() *installed { return cmp.Or(m.staged, m.tried, m.installed) }

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
