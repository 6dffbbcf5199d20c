package talos_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

func TestResourcesNeedAReaderAndASingleMachine(t *testing.T) {
	l := newLab(t)
	l.raise(2, 0)
	l.bootNew(3)
	l.clock.advance(step)
	own := []string{"ens18/" + l.address(3) + "/24", "lo/127.0.0.1/8"}
	if got := addresses(t, l.anyone(l.address(3))); !slices.Equal(got, own) {
		t.Errorf("in maintenance: %v, want %v", got, own)
	}
	reader := l.as(role.Reader, l.address(1))
	list := network.NewAddressStatus(network.NamespaceName, "").Metadata()
	_, err := reader.COSI.List(client.WithNodes(within(t), l.address(1), l.address(2)), list)
	wantRefusal(t, err, codes.InvalidArgument,
		"one-2-many proxying is not supported for method /cosi.resource.State/List")
	other, err := reader.COSI.List(client.WithNode(within(t), l.address(2)), list)
	if err != nil || !slices.ContainsFunc(other.Items,
		func(r resource.Resource) bool { return r.Metadata().ID() == "ens18/"+l.address(2)+"/24" }) {
		t.Errorf("through another machine: %v, %v", other, err)
	}
	_, err = reader.COSI.List(within(t), k8s.NewEndpoint(k8s.ControlPlaneNamespaceName, "").Metadata())
	wantRefusal(t, err, codes.PermissionDenied, "is not supported")
	_, err = l.as(role.EtcdBackup, l.address(1)).COSI.List(within(t), list)
	wantRefusal(t, err, codes.PermissionDenied, "not authorized")
}

func TestAMachineHasItsFurtherAddresses(t *testing.T) {
	l := newLab(t)
	if err := l.fleet.Boot(talos.Machine{Address: l.address(3), Name: "blue-03",
		Further: []netip.Prefix{netip.MustParsePrefix("fd00:1::3/64")}}); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	own := []string{"ens18/" + l.address(3) + "/24", "ens18/fd00:1::3/64", "lo/127.0.0.1/8"}
	if got := addresses(t, l.anyone(l.address(3))); !slices.Equal(got, own) {
		t.Errorf("in maintenance: %v, want %v", got, own)
	}
}

func TestWatchReportsChangesAndEndsWithItsSystem(t *testing.T) {
	l := newLab(t)
	l.raiseWithVIP(2)
	watch, err := v1alpha1.NewStateClient(l.as(role.Reader, l.address(1)).Conn()).Watch(within(t),
		&v1alpha1.WatchRequest{
			Namespace: network.NamespaceName, Type: network.AddressStatusType, ApiVersion: 1,
			Options: &v1alpha1.WatchOptions{},
		})
	if err != nil {
		t.Fatal(err)
	}
	if event, err := watch.Recv(); err != nil || len(event.GetEvent()) != 0 {
		t.Fatalf("the watch begins with %v, %v", event, err)
	}
	if err := l.fleet.MoveVirtualIP(l.vip(), ""); err != nil {
		t.Fatal(err)
	}
	event, err := watch.Recv()
	if err != nil || event.GetEvent()[0].GetEventType() != v1alpha1.EventType_DESTROYED ||
		event.GetEvent()[0].GetResource().GetMetadata().GetId() != "ens18/"+l.vip()+"/32" {
		t.Errorf("a move is reported as %v, %v", event, err)
	}
	l.fleet.Halt(l.address(1))
	if event, err := watch.Recv(); err == nil {
		t.Errorf("the machine is off, and the watch has %v", event)
	}
}
