package talos

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A web server's page gets a code from gRPC: 404 is Unimplemented, as from a machine in maintenance mode.
func TestAWebServerIsNoMachineInMaintenance(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusOK,
		http.StatusBadGateway} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		defer server.Close()
		m := &machines{timeout: attempt}
		o := m.queryOwnership(t.Context(), server.Listener.Addr().String())
		if o.owner != unknown || !strings.Contains(o.reason, "something answers that is not Talos: ") {
			t.Errorf("%d: %+v", code, o)
		}
	}
}

func TestTheRefusalOfAProxyIsNotTheMachines(t *testing.T) {
	m := &machines{timeout: attempt}
	text := "unexpected HTTP status code received from server: 403 (Forbidden)"
	p := m.explain("10.0.0.1", status.Error(codes.PermissionDenied, text), "addresses")
	if p.permanent || p.reason != "something answers that is not Talos: "+text {
		t.Errorf("%+v", p)
	}
}

// A machine always has the address at which it answers.
func TestNoAddressAtAllIsNoMissingAddress(t *testing.T) {
	c := &client.Client{COSI: state.WrapCore(namespaced.NewState(inmem.Build))}
	if err := readAddresses(t.Context(), c, &nodeView{}); err == nil {
		t.Error("an empty list of addresses is believed")
	}
}

// emptyList answers with a list of files that lacks even the directory itself.
type emptyList struct {
	machineapi.MachineServiceClient
	machineapi.MachineService_ListClient
}

func (e emptyList) List(context.Context, *machineapi.ListRequest, ...grpc.CallOption) (
	machineapi.MachineService_ListClient, error) {
	return e, nil
}

func (emptyList) Recv() (*machineapi.FileInfo, error) { return nil, io.EOF }

func TestAnEmptyListIsNoEmptyEtcd(t *testing.T) {
	if _, err := hasEtcdData(t.Context(), &client.Client{MachineClient: emptyList{}}); err == nil {
		t.Error("an empty list of files is believed: etcd would be bootstrapped again")
	}
}
