package talos_test

import (
	"slices"
	"testing"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
)

func TestResourcesAreForReadersAndOneMachineAtATime(t *testing.T) {
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
	wantRefusal(t, err, codes.InvalidArgument, "one-2-many proxying is not supported for method /cosi.resource.State/List")
	other, err := reader.COSI.List(client.WithNode(within(t), l.address(2)), list)
	if err != nil || !slices.ContainsFunc(other.Items, func(r resource.Resource) bool { return r.Metadata().ID() == "ens18/"+l.address(2)+"/24" }) {
		t.Errorf("through another machine: %v, %v", other, err)
	}
	_, err = reader.COSI.List(within(t), k8s.NewNodename(k8s.NamespaceName, "").Metadata())
	wantRefusal(t, err, codes.PermissionDenied, "is not supported")
	_, err = l.as(role.EtcdBackup, l.address(1)).COSI.List(within(t), list)
	wantRefusal(t, err, codes.PermissionDenied, "not authorized")
}

func TestAWatchHearsChangesAndEndsWithItsSystem(t *testing.T) {
	l := newLab(t)
	l.raiseWithVIP(2)
	watch, err := v1alpha1.NewStateClient(l.as(role.Reader, l.address(1)).Conn()).Watch(within(t), &v1alpha1.WatchRequest{
		Namespace: network.NamespaceName, Type: network.AddressStatusType, ApiVersion: 1, Options: &v1alpha1.WatchOptions{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if said, err := watch.Recv(); err != nil || len(said.GetEvent()) != 0 {
		t.Fatalf("the watch begins with %v, %v", said, err)
	}
	if err := l.MoveVirtualIP(l.vip(), ""); err != nil {
		t.Fatal(err)
	}
	said, err := watch.Recv()
	if err != nil || said.GetEvent()[0].GetEventType() != v1alpha1.EventType_DESTROYED ||
		said.GetEvent()[0].GetResource().GetMetadata().GetId() != "ens18/"+l.vip()+"/32" {
		t.Errorf("a move is heard as %v, %v", said, err)
	}
	l.Halt(l.address(1))
	if said, err := watch.Recv(); err == nil {
		t.Errorf("the machine is off, and says %v", said)
	}
}
