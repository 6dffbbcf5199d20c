package talos

import (
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// route is where apid was asked to send a request.
type route struct {
	nodes []string // none: the machine itself
	many  bool     // answers are collected, each labelled with its node
}

// routeOf reads the metadata "node" (one target, answer passed on as it is) and
// "nodes" (a fan-out).
func routeOf(md metadata.MD) (route, error) {
	node, nodes := md.Get("node"), md.Get("nodes")
	switch {
	case len(node) > 1:
		return route{}, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	case len(nodes) > 0:
		return route{nodes: nodes, many: true}, nil
	default:
		return route{nodes: node}, nil
	}
}

// reach returns the machine that apid on from would connect to for target, or
// what it would meet there.
func (f *Fleet) reach(from *machine, r route, target string) (*machine, error) {
	f.mu.Lock()
	defer f.unlock()
	if !from.controlPlane() {
		// A worker's apid has no client certificate of its own.
		if len(r.nodes) == 1 && target == from.Address {
			return from, nil
		}
		return nil, status.Error(codes.PermissionDenied, "no request forwarding")
	}
	if _, _, err := net.SplitHostPort(target); target == "" || err == nil {
		return nil, status.Error(codes.Internal, fmt.Sprintf("invalid target %q", target))
	}
	m := f.find(target)
	switch {
	case m == nil && strings.ContainsFunc(target, func(r rune) bool { return r >= 'g' && r <= 'z' }):
		return nil, status.Error(codes.Unavailable, "name resolver error: produced zero addresses")
	case m == nil || m.stage == Off:
		return nil, f.unreachable(target, "connect: no route to host")
	case m.stage == Booting:
		return nil, f.unreachable(target, "connect: connection refused")
	case m.stage == Maintenance || m.installed.ca != from.installed.ca:
		return nil, status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: `+
			`tls: failed to verify certificate: x509: certificate signed by unknown authority"`)
	}
	return m, nil
}

func (f *Fleet) unreachable(target, why string) error {
	return status.Errorf(codes.Unavailable,
		`connection error: desc = "transport: Error while dialing: dial tcp %s:%d: %s"`, target, f.config.Port, why)
}
