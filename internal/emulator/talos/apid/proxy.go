// Package apid is the front of a machine's API: it identifies callers, checks their roles, routes requests to
// other machines, and collects the answers of several.
package apid

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Proxy handles every request to one API server. Machines are of type M.
type Proxy[M any] struct {
	Self M // the machine of the server
	// Reach returns the machine that this one would connect to for node, or the error of that connection.
	// alone says that the request has no other target.
	Reach func(node string, alone bool) (M, error)
	// Lock is held while a handler of a unary call runs.
	Lock        func() (unlock func())
	Maintenance bool // everyone is a reader, and metadata routes nothing
}

// target is one machine that a request goes to, or the error on the way to it.
type target struct {
	node string // as the caller named it
	ctx  context.Context
	err  error
}

// Request holds a handler's facts about its caller; it travels in the context.
type Request[M any] struct {
	Target M // the machine that answers, which may differ from the connected one
	Roles  role.Set
}

type requestKey struct{}

// RequestOf returns the request of a handler's context.
func RequestOf[M any](ctx context.Context) Request[M] {
	r, _ := ctx.Value(requestKey{}).(Request[M]) //nolint:errcheck // the proxy sets it for every handler
	return r
}

// callerRoles reads the roles from the client certificate's organisations.
// Maintenance mode makes everyone a reader.
func (p *Proxy[M]) callerRoles(ctx context.Context) role.Set {
	if p.Maintenance {
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

// NotAuthorized is the refusal of a caller without the role that a call needs.
func NotAuthorized() error { return status.Error(codes.PermissionDenied, "not authorized") }

// OnlyOnControlPlanes is the refusal of a call by a worker.
func OnlyOnControlPlanes(api string) error {
	return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", api)
}

// aggregated are the services whose answers apid collects from several machines.
var aggregated = []string{"/machine.MachineService/", "/cluster.", "/inspect.", "/storage.", "/time."}

// enter identifies the caller and the targets of a request. The metadata "node" names one target, whose
// answer is passed on unchanged; those of "nodes" are collected (many), each labelled with its node.
func (p *Proxy[M]) enter(ctx context.Context, method string) (targets []target, many bool, err error) {
	var nodes []string
	if md, ok := metadata.FromIncomingContext(ctx); ok && !p.Maintenance {
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
	admit := func(node string, m M, err error) {
		if err == nil && !allowedRoles(method).IncludesAny(roles) {
			err = NotAuthorized()
		}
		ctx := context.WithValue(ctx, requestKey{}, Request[M]{Target: m, Roles: roles})
		targets = append(targets, target{node: node, ctx: ctx, err: err})
	}
	for _, node := range nodes {
		m, err := p.Reach(node, len(nodes) == 1)
		admit(node, m, err)
	}
	if len(nodes) == 0 {
		admit("", p.Self, nil)
	}
	return targets, many, nil
}

// Unary runs the handler under the lock.
func (p *Proxy[M]) Unary(
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
		defer p.Lock()()
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

// Stream runs the handler for each target in turn.
func (p *Proxy[M]) Stream(
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
