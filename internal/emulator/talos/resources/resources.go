// Package resources has the resources of a machine's system, in the COSI runtime that Talos uses. Of Talos'
// many types it knows those in kinds.
package resources

import (
	"context"
	"net/netip"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/talos/pkg/machinery/extensions"
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

// State has the resources of one system. It reports its own errors, which no client gets.
type State struct {
	core state.CoreState
	ctx  context.Context
	fail func(error)
}

// New returns the resources of a system that starts: those by which talosctl finds types and their aliases.
func New(ctx context.Context, fail func(error)) *State {
	s := &State{core: namespaced.NewState(inmem.Build), ctx: ctx, fail: fail}
	for _, kind := range kinds {
		definition, err := meta.NewResourceDefinition(kind.ResourceDefinition())
		if err != nil {
			fail(err)
			continue
		}
		s.create(definition)
	}
	for _, name := range namespaces {
		s.create(meta.NewNamespace(name, meta.NamespaceSpec{}))
	}
	return s
}

// Serve answers the reads of a caller with these roles.
func (s *State) Serve(roles role.Set) *server.State {
	return server.NewState(state.Filter(s.core,
		func(_ context.Context, access state.Access) error { return readable(roles, access) }))
}

func (s *State) create(r resource.Resource) { s.fail(s.core.Create(s.ctx, r)) }

// Set creates a resource, or changes it.
func Set[R resource.Resource](s *State, r R, change func(R)) {
	s.fail(safe.StateModify(s.ctx, state.WrapCore(s.core), r, func(r R) error {
		change(r)
		return nil
	}))
}

// Remove removes a resource, if it is there.
func (s *State) Remove(r resource.Resource) {
	if err := s.core.Destroy(s.ctx, r.Metadata()); !state.IsNotFoundError(err) {
		s.fail(err)
	}
}

// Replace puts a resource in the place of the one with its id.
func (s *State) Replace(r resource.Resource) {
	s.Remove(r)
	s.create(r)
}

// AddLink adds a network link that is up.
func (s *State) AddLink(name string, spec network.LinkStatusSpec) {
	spec.LinkState, spec.OperationalState = true, nethelpers.OperStateUp
	link := network.NewLinkStatus(network.NamespaceName, name)
	*link.TypedSpec() = spec
	s.create(link)
}

// AddAddress adds an address to a link.
func (s *State) AddAddress(link string, address netip.Prefix) {
	a := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, address))
	a.TypedSpec().Address, a.TypedSpec().LinkName = address, link
	a.TypedSpec().Flags = nethelpers.AddressFlags(nethelpers.AddressPermanent)
	a.TypedSpec().Family = nethelpers.FamilyInet4
	if address.Addr().Is6() {
		a.TypedSpec().Family = nethelpers.FamilyInet6
	}
	s.create(a)
}

// DropAddress removes an address of a link.
func (s *State) DropAddress(link string, address netip.Prefix) {
	a := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, address))
	s.fail(s.core.Destroy(s.ctx, a.Metadata()))
}

// AddSchematic adds the extension by which the image factory marks its images.
func (s *State) AddSchematic(id string) {
	e := runtime.NewExtensionStatus(runtime.NamespaceName, "0")
	e.TypedSpec().Image = "schematic"
	e.TypedSpec().Metadata = extensions.Metadata{Name: "schematic", Version: id,
		Author: "Image Factory", Description: "Virtual extension which specifies the schematic of the " +
			"image built with Image Factory."}
	s.create(e)
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
		return status.Error(codes.PermissionDenied, "not authorized")
	case !slices.Contains(namespaces, access.ResourceNamespace):
		return status.Errorf(codes.PermissionDenied, "namespace %q is not supported",
			access.ResourceNamespace)
	}
	return nil
}
