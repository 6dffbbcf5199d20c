package talos

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// door is what every request to one API server passes: apid finds out who is
// calling and routes; each target judges whether the caller may.
type door struct {
	fleet       *Fleet
	machine     *machine
	maintenance bool // everyone is a reader, and metadata routes nothing
}

// target is one machine that a request goes to, or what stands in the way of it.
type target struct {
	node string // as the caller named it
	ctx  context.Context
	err  error
}

// enter settles who is calling and where the request goes.
func (d *door) enter(ctx context.Context, method string) (Call, route, []target) {
	roles := callerRoles(ctx, d.maintenance)
	call := Call{Address: d.machine.Address, Method: method, Roles: roles.Strings()}
	var to route
	if md, ok := metadata.FromIncomingContext(ctx); ok && !d.maintenance {
		if to, call.Err = routeOf(md); call.Err != nil {
			return call, to, nil
		}
	}
	if to.many && strings.HasPrefix(method, "/cosi.") {
		call.Err = status.Errorf(codes.InvalidArgument, "one-2-many proxying is not supported for method %s", method)
		return call, to, nil
	}
	call.Nodes = to.nodes
	admit := func(node string, m *machine, err error) target {
		if err == nil && !allowedRoles(method).IncludesAny(roles) {
			err = notAuthorized()
		}
		return target{node: node, ctx: withRequest(ctx, request{target: m, roles: roles}), err: err}
	}
	if len(to.nodes) == 0 {
		return call, to, []target{admit("", d.machine, nil)}
	}
	var targets []target
	for _, node := range to.nodes {
		m, err := d.fleet.reach(d.machine, to, node)
		targets = append(targets, admit(node, m, err))
	}
	return call, to, targets
}

func (d *door) record(call Call) {
	if hook := d.fleet.config.Hooks.OnCall; hook != nil {
		hook(call)
	}
}

func (d *door) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	call, to, targets := d.enter(ctx, info.FullMethod)
	defer func() { d.record(call) }()
	if call.Err != nil {
		return nil, call.Err
	}
	ask := func(t target) (any, error) {
		if t.err != nil {
			return nil, t.err
		}
		return handle(t.ctx, req)
	}
	if !to.many {
		var resp any
		resp, call.Err = ask(targets[0])
		return resp, call.Err
	}
	all, err := newAnswers(info.FullMethod)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		resp, err := ask(t)
		if err != nil {
			call.Err = err
			all.addError(t.node, err)
		} else if m, ok := resp.(proto.Message); ok {
			all.add(t.node, m)
		}
	}
	return all.response.Interface(), nil
}

func (d *door) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	call, to, targets := d.enter(s.Context(), info.FullMethod)
	defer func() { d.record(call) }()
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
			break
		}
		if err := s.SendMsg(&common.Empty{Metadata: errorMetadata(t.node, err)}); err != nil {
			return err
		}
	}
	if to.many {
		return nil
	}
	return call.Err
}

// routedStream carries the target in its context and labels what passes with node, if set.
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
