package talos

import (
	"context"
	"fmt"
	"net"
	"path"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
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

// route is the destination in a request's metadata.
type route struct {
	nodes []string // none: the machine itself
	many  bool     // answers are collected, each labelled with its node
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
func callerRoles(ctx context.Context, maintenance bool) role.Set {
	if maintenance {
		return role.MakeSet(role.Reader)
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
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
	case "Version", "ServiceList", "Disks", "Get", "List", "Watch":
		return role.MakeSet(role.Admin, role.Operator, role.Reader)
	case "EtcdMemberList", "EtcdStatus", "EtcdAlarmList":
		return role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	case "Reboot", "Shutdown":
		return role.MakeSet(role.Admin, role.Operator)
	default:
		return role.MakeSet(role.Admin)
	}
}

func notAuthorized() error { return status.Error(codes.PermissionDenied, "not authorized") }

// routeOf reads the metadata "node" (one target, answer passed on unchanged) and
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

// enter identifies the caller and the targets of a request.
func (p *proxy) enter(ctx context.Context, method string) (call Call, to route, targets []target) {
	roles := callerRoles(ctx, p.maintenance)
	call = Call{Address: p.machine.spec.Address, Method: method, Roles: roles.Strings()}
	if md, ok := metadata.FromIncomingContext(ctx); ok && !p.maintenance {
		if to, call.Err = routeOf(md); call.Err != nil {
			return call, to, nil
		}
	}
	if to.many && strings.HasPrefix(method, "/cosi.") {
		call.Err = status.Errorf(codes.InvalidArgument,
			"one-2-many proxying is not supported for method %s", method)
		return call, to, nil
	}
	call.Nodes = to.nodes
	admit := func(node string, m *machine, err error) {
		if err == nil && !allowedRoles(method).IncludesAny(roles) {
			err = notAuthorized()
		}
		ctx := context.WithValue(ctx, requestKey{}, request{target: m, roles: roles})
		targets = append(targets, target{node: node, ctx: ctx, err: err})
	}
	if len(to.nodes) == 0 {
		admit("", p.machine, nil)
	}
	for _, node := range to.nodes {
		m, err := p.reach(to, node)
		admit(node, m, err)
	}
	return call, to, targets
}

// reach returns the machine that this apid would connect to for node, or the error
// of that connection.
func (p *proxy) reach(r route, node string) (*machine, error) {
	defer p.world.lock()()
	if !p.machine.controlPlane() {
		// A worker's apid has no client certificate of its own.
		if len(r.nodes) == 1 && node == p.machine.spec.Address {
			return p.machine, nil
		}
		return nil, status.Error(codes.PermissionDenied, "no request forwarding")
	}
	if _, _, err := net.SplitHostPort(node); node == "" || err == nil {
		return nil, status.Error(codes.Internal, fmt.Sprintf("invalid target %q", node))
	}
	connection := func(desc string) (*machine, error) {
		return nil, status.Errorf(codes.Unavailable, `connection error: desc = "transport: %s"`, desc)
	}
	dial := fmt.Sprintf("Error while dialing: dial tcp %s:%d: connect: ", node, p.world.config.Port)
	m := p.world.find(node)
	switch {
	case m == nil && strings.ContainsFunc(node, func(r rune) bool { return r >= 'g' && r <= 'z' }):
		return nil, status.Error(codes.Unavailable, "name resolver error: produced zero addresses")
	case m == nil || m.stage == Off:
		return connection(dial + "no route to host")
	case m.stage == Booting:
		return connection(dial + "connection refused")
	case m.stage == Maintenance || m.installed.ca != p.machine.installed.ca:
		return connection("authentication handshake failed: tls: failed to verify certificate: x509: " +
			"certificate signed by unknown authority")
	}
	return m, nil
}

func (p *proxy) record(call *Call) {
	if hook := p.world.config.Hooks.OnCall; hook != nil {
		hook(*call)
	}
}

// unary runs the handler under the fleet's mutex.
func (p *proxy) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	call, to, targets := p.enter(ctx, info.FullMethod)
	defer p.record(&call)
	if call.Err != nil {
		return nil, call.Err
	}
	send := func(t target) (any, error) {
		if t.err != nil {
			return nil, t.err
		}
		defer p.world.lock()()
		return handle(t.ctx, req)
	}
	if !to.many {
		var resp any
		resp, call.Err = send(targets[0])
		return resp, call.Err
	}
	response, list, err := newResponse(info.FullMethod)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		resp, err := send(t)
		if err != nil {
			call.Err = err
			element := list.NewElement()
			label(element.Message(), errorMetadata(t.node, err))
			list.Append(element)
		} else if m, ok := resp.(proto.Message); ok {
			part := messages(m.ProtoReflect())
			for i := range part.Len() {
				label(part.Get(i).Message(), &common.Metadata{Hostname: t.node})
				list.Append(part.Get(i))
			}
		}
	}
	return response.Interface(), nil
}

func (p *proxy) stream(
	srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	call, to, targets := p.enter(s.Context(), info.FullMethod)
	defer p.record(&call)
	if call.Err != nil {
		return call.Err
	}
	for _, t := range targets {
		routed := &routedStream{ServerStream: s, ctx: t.ctx}
		if to.many {
			routed.node = t.node
		}
		err := t.err
		if err == nil {
			err = handle(srv, routed)
		}
		if err == nil {
			continue
		}
		call.Err = err
		if !to.many {
			return err
		}
		if err := s.SendMsg(&common.Empty{Metadata: errorMetadata(t.node, err)}); err != nil {
			return err
		}
	}
	return nil
}

// routedStream has the target in its context and labels messages with node, if set.
type routedStream struct {
	grpc.ServerStream
	ctx  context.Context
	node string
}

func (s *routedStream) Context() context.Context { return s.ctx }

func (s *routedStream) SendMsg(m any) error {
	if data, ok := m.(*common.Data); ok && s.node != "" {
		data.Metadata = &common.Metadata{Hostname: s.node}
	}
	return s.ServerStream.SendMsg(m)
}

// newResponse creates an empty response of a method and its list "messages", whose
// elements carry "metadata": every unary response of the API has this form.
func newResponse(method string) (protoreflect.Message, protoreflect.List, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, nil, status.Error(codes.Unimplemented, err.Error())
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, nil, status.Errorf(codes.Unimplemented, "%s is no method", name)
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, nil, status.Error(codes.Internal, err.Error())
	}
	response := t.New()
	return response, messages(response), nil
}

func messages(response protoreflect.Message) protoreflect.List {
	return response.Mutable(response.Descriptor().Fields().ByName("messages")).List()
}

func label(m protoreflect.Message, metadata *common.Metadata) {
	m.Set(m.Descriptor().Fields().ByName("metadata"), protoreflect.ValueOfMessage(metadata.ProtoReflect()))
}

func errorMetadata(node string, err error) *common.Metadata {
	return &common.Metadata{Hostname: node, Error: err.Error(), Status: status.Convert(err).Proto()}
}
