package talos

import (
	"context"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// proxy handles every request to one API server: it identifies the caller and
// routes; each target checks whether the caller is authorized.
type proxy struct {
	world       *world
	machine     *machine
	maintenance bool // everyone is a reader, and metadata routes nothing
}

// target is one machine that a request goes to, or the error on the way to it.
type target struct {
	node string // as the caller named it
	ctx  context.Context
	err  error
}

// request holds a handler's facts about its caller; it travels in the context.
type request struct {
	target *machine // the machine that answers, which may differ from the connected one
	roles  role.Set
}

type requestKey struct{}

func requestOf(ctx context.Context) request {
	r, _ := ctx.Value(requestKey{}).(request) //nolint:errcheck // the proxy sets it for every handler
	return r
}

// callerRoles reads the roles from the client certificate's organisations.
// Maintenance mode makes everyone a reader.
func (p *proxy) callerRoles(ctx context.Context) role.Set {
	if p.maintenance {
		return role.MakeSet(role.Reader)
	}
	if caller, ok := peer.FromContext(ctx); ok {
		if info, ok := caller.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)
			return roles
		}
	}
	return role.Zero
}

// allowedRoles are the roles that may call a method; an unlisted one is for admins.
// ApplyConfiguration checks again: readers may call it only in maintenance mode.
func allowedRoles(method string) role.Set {
	switch path.Base(method) {
	case "ApplyConfiguration":
		return role.MakeSet(role.Admin, role.Reader)
	case "Version", "ServiceList", "Disks", "Get", "List", "Watch", "Events", "HealthCheck", "Containers",
		"Dmesg", "Logs", "LogsContainers", "Memory", "Time", "TimeCheck":
		return role.MakeSet(role.Admin, role.Operator, role.Reader)
	case "EtcdMemberList", "EtcdStatus", "EtcdAlarmList":
		return role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	case "EtcdSnapshot":
		return role.MakeSet(role.Admin, role.Operator, role.EtcdBackup)
	case "Reboot", "Shutdown", "Pull", "EtcdAlarmDisarm", "EtcdDefragment", "ServiceRestart":
		return role.MakeSet(role.Admin, role.Operator)
	default:
		return role.MakeSet(role.Admin)
	}
}

func notAuthorized() error { return status.Error(codes.PermissionDenied, "not authorized") }

// aggregated are the services whose answers apid collects from several machines.
var aggregated = []string{"/machine.MachineService/", "/cluster.", "/inspect.", "/storage.", "/time."}

// enter identifies the caller and the targets of a request. The metadata "node" names one target, whose
// answer is passed on unchanged; those of "nodes" are collected (many), each labelled with its node.
func (p *proxy) enter(ctx context.Context, method string) (targets []target, many bool, err error) {
	var nodes []string
	if md, ok := metadata.FromIncomingContext(ctx); ok && !p.maintenance {
		if nodes = md.Get("node"); len(nodes) > 1 {
			return nil, false, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
		}
		if all := md.Get("nodes"); len(all) > 0 {
			nodes, many = all, true
		}
	}
	if many && !slices.ContainsFunc(aggregated, func(s string) bool { return strings.HasPrefix(method, s) }) {
		return nil, false, status.Errorf(codes.InvalidArgument,
			"one-2-many proxying is not supported for method %s", method)
	}
	roles := p.callerRoles(ctx)
	admit := func(node string, m *machine, err error) {
		if err == nil && !allowedRoles(method).IncludesAny(roles) {
			err = notAuthorized()
		}
		ctx := context.WithValue(ctx, requestKey{}, request{target: m, roles: roles})
		targets = append(targets, target{node: node, ctx: ctx, err: err})
	}
	for _, node := range nodes {
		m, err := p.reach(node, len(nodes) == 1)
		admit(node, m, err)
	}
	if len(nodes) == 0 {
		admit("", p.machine, nil)
	}
	return targets, many, nil
}

// reach returns the machine that this apid would connect to for node, or the error
// of that connection. alone says that the request has no other target.
func (p *proxy) reach(node string, alone bool) (*machine, error) {
	defer p.world.lock()()
	if !p.machine.controlPlane() {
		// A worker's apid has no client certificate of its own.
		if alone && node == p.machine.spec.Address {
			return p.machine, nil
		}
		return nil, status.Error(codes.PermissionDenied, "no request forwarding")
	}
	if _, _, err := net.SplitHostPort(node); node == "" || err == nil {
		return nil, status.Errorf(codes.Internal, "invalid target %q", node)
	}
	refuse := func(format string, args ...any) (*machine, error) {
		format = `connection error: desc = "transport: ` + format + `"`
		return nil, status.Errorf(codes.Unavailable, format, args...)
	}
	const dial = "Error while dialing: dial tcp %s:%d: connect: "
	m := p.world.find(node)
	switch {
	case m == nil && strings.ContainsFunc(node, func(r rune) bool { return r >= 'g' && r <= 'z' }):
		return nil, status.Error(codes.Unavailable, "name resolver error: produced zero addresses")
	case m == nil || m.stage == Off:
		return refuse(dial+"no route to host", node, constants.ApidPort)
	case m.stage == Booting:
		return refuse(dial+"connection refused", node, constants.ApidPort)
	case m.stage == Maintenance || m.installed.ca != p.machine.installed.ca:
		return refuse("authentication handshake failed: tls: failed to verify certificate: x509: " +
			"certificate signed by unknown authority")
	}
	return m, nil
}

// unary runs the handler under the fleet's mutex.
func (p *proxy) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	targets, many, err := p.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	send := func(t target) (any, error) {
		if t.err != nil {
			return nil, t.err
		}
		defer p.world.lock()()
		return handle(t.ctx, req)
	}
	if !many {
		return send(targets[0])
	}
	// Every response is a list of messages that begin with their metadata, as Empty does. Empty keeps the
	// fields that it does not know, so all answers fit into one EmptyResponse.
	all := &common.EmptyResponse{}
	for _, t := range targets {
		part, label := &common.EmptyResponse{}, &common.Metadata{Hostname: t.node}
		answer, err := send(t)
		if m, ok := answer.(proto.Message); ok && err == nil {
			err = convert(m, part)
		}
		if err != nil {
			part.Messages, label = []*common.Empty{{}}, errorMetadata(t.node, err)
		}
		for _, m := range part.GetMessages() {
			m.Metadata = label
			all.Messages = append(all.Messages, m)
		}
	}
	return all, nil
}

func convert(from, to proto.Message) error {
	data, err := proto.Marshal(from)
	if err != nil {
		return err
	}
	return proto.Unmarshal(data, to)
}

func (p *proxy) stream(
	srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	targets, many, err := p.enter(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	for _, t := range targets {
		err := t.err
		if err == nil {
			err = handle(srv, &routedStream{ServerStream: s, ctx: t.ctx, node: t.node, many: many})
		}
		if err != nil && many {
			err = s.SendMsg(&common.Empty{Metadata: errorMetadata(t.node, err)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// routedStream has the target in its context, and labels messages that are collected.
type routedStream struct {
	grpc.ServerStream
	ctx  context.Context
	node string
	many bool
}

func (s *routedStream) Context() context.Context { return s.ctx }

func (s *routedStream) SendMsg(m any) error {
	if !s.many {
		return s.ServerStream.SendMsg(m)
	}
	label := &common.Metadata{Hostname: s.node}
	switch answer := m.(type) {
	case *common.Data:
		answer.Metadata = label
	case *pb.Event:
		answer.Metadata = label
	case *cluster.HealthCheckProgress:
		answer.Metadata = label
	}
	return s.ServerStream.SendMsg(m)
}

func errorMetadata(node string, err error) *common.Metadata {
	return &common.Metadata{Hostname: node, Error: err.Error(), Status: status.Convert(err).Proto()}
}
