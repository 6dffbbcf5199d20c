package talos

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"github.com/cosi-project/runtime/api/v1alpha1"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// tlsSource makes the TLS configuration that a machine serves with.
type tlsSource func(*machine) (*tls.Config, error)

// apid is one listening API server. A machine gets a new one each time its
// certificates change or it restarts, as Talos restarts apid.
type apid struct {
	listener net.Listener
	grpc     *grpc.Server
	done     chan struct{}
}

// serve starts the machine's API and reports whether that worked.
func (f *Fleet) serve(m *machine, source tlsSource) bool {
	s, err := f.listen(m, source)
	if err != nil {
		f.trouble(m, err)
		return false
	}
	m.server = s
	f.servers = append(f.servers, s)
	return true
}

func (f *Fleet) listen(m *machine, source tlsSource) (*apid, error) {
	config, err := source(m)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(m.Address, strconv.Itoa(f.config.Port)))
	if err != nil {
		return nil, fmt.Errorf("apid: %w", err)
	}
	// Where no client certificate is asked for, everyone is a reader and nothing is routed.
	door := &door{fleet: f, machine: m, maintenance: config.ClientAuth == tls.NoClientCert}
	s := &apid{listener: l, done: make(chan struct{}), grpc: grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.UnaryInterceptor(door.unary),
		grpc.StreamInterceptor(door.stream),
	)}
	machineapi.RegisterMachineServiceServer(s.grpc, &machineService{fleet: f})
	storage.RegisterStorageServiceServer(s.grpc, &storageService{fleet: f})
	v1alpha1.RegisterStateServer(s.grpc, &resourceService{fleet: f})
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l) //nolint:errcheck // it ends because the listener or the server was closed
	}()
	return s, nil
}

// retire frees the address at once and lets what is in flight finish.
func (s *apid) retire() {
	_ = s.listener.Close() //nolint:errcheck // the server may have closed it
	go s.grpc.GracefulStop()
}
