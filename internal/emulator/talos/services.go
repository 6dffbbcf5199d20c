package talos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/resources"
)

// ServiceList lists the machine's services by name, each with what has happened to it since the machine's
// start, as `talosctl services` shows them.
func (s *machineService) ServiceList(ctx context.Context, _ *emptypb.Empty) (*pb.ServiceListResponse, error) {
	m := requestOf(ctx).Target
	list := servicesOf(m)
	for i, info := range list {
		if known := m.services[info.GetId()]; known != nil {
			list[i] = proto.CloneOf(known) // it is sent without the lock
		}
	}
	return &pb.ServiceListResponse{Messages: []*pb.ServiceList{{Services: list}}}, nil
}

// noteServices adds what has changed in the machine's services to their histories, and to its events.
func (p *power) noteServices(m *machine) {
	for _, now := range servicesOf(m) {
		id, known := now.GetId(), m.services[now.GetId()]
		last := now.GetEvents().GetEvents()[0]
		if known == nil {
			known = &pb.ServiceInfo{Id: id, Health: &pb.ServiceHealth{}, Events: &pb.ServiceEvents{}}
			m.services[id] = known
		}
		if had := known.Events.Events; len(had) > 0 && had[len(had)-1].GetMsg() == last.GetMsg() &&
			known.State == now.State {
			continue
		}
		if now.State == "Running" && known.State != "Running" {
			known.Health = &pb.ServiceHealth{Unknown: true}
			p.noteService(m, known, "Starting", "Starting service")
			p.noteService(m, known, "Running", "Started task "+id)
		}
		known.Health = now.Health
		known.Health.LastChange = last.GetTs()
		p.noteService(m, known, now.State, last.GetMsg())
		resources.Set(m.resources, v1alpha1.NewService(id), func(r *v1alpha1.Service) {
			r.TypedSpec().Running, r.TypedSpec().Healthy = now.State == "Running", now.Health.Healthy
			r.TypedSpec().Unknown = now.Health.Unknown
		})
	}
}

func (p *power) noteService(m *machine, known *pb.ServiceInfo, state, text string) {
	known.State = state
	known.Events.Events = append(known.Events.Events,
		&pb.ServiceEvent{Msg: text, State: state, Ts: timestamppb.New(time.Now())})
	p.world.publish(m, "", &pb.ServiceStateEvent{Service: known.GetId(), Message: text, Health: known.Health,
		Action: pb.ServiceStateEvent_Action(pb.ServiceStateEvent_Action_value[strings.ToUpper(state)])})
}

// ServiceRestart restarts the kubelet, the only service that Talos restarts for a caller.
func (s *machineService) ServiceRestart(ctx context.Context, req *pb.ServiceRestartRequest) (
	*pb.ServiceRestartResponse, error) {
	m, id := requestOf(ctx).Target, req.GetId()
	switch known := m.services[id]; {
	case known == nil:
		return nil, fmt.Errorf("service %q not defined", id)
	case id != "kubelet":
		return nil, fmt.Errorf("service %q doesn't support restart operation via API", id)
	case m.ready:
		s.power.noteService(m, known, "Finished", "Service finished successfully")
		callLater(s.world, s.world.config.Hooks.OnMachineConfigured, m.machineSpec())
	}
	return &pb.ServiceRestartResponse{Messages: []*pb.ServiceRestart{
		{Resp: fmt.Sprintf("Service %q restarted", id)}}}, nil
}

func servicesOf(m *machine) (list []*pb.ServiceInfo) {
	for _, id := range []string{"apid", "auditd", "containerd", "machined", "syslogd", "udevd"} {
		list = append(list, service(id, "Running", ""))
	}
	if m.installed != nil {
		list = append(list, needs(m, "kubelet", `Waiting for service "cri" to be "up"`),
			needs(m, "cri", "Waiting for network"))
	}
	if m.controlPlane() {
		list = append(list, service("trustd", "Running", ""), etcdInfo(m))
	}
	slices.SortFunc(list, func(a, b *pb.ServiceInfo) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return list
}

// needs is a service that runs once the machine is ready, and ends when it goes down.
func needs(m *machine, id, waits string) *pb.ServiceInfo {
	switch m.doing {
	case runtime.MachineStageRebooting, runtime.MachineStageShuttingDown, runtime.MachineStageUpgrading,
		runtime.MachineStageResetting:
		return service(id, "Finished", "Service finished successfully")
	}
	if m.ready {
		return service(id, "Running", "")
	}
	return service(id, "Waiting", waits)
}

// etcdInfo is the state of etcd.
func etcdInfo(m *machine) *pb.ServiceInfo {
	if state, why := m.etcd.Service(); state != "" {
		return service("etcd", state, why)
	}
	return needs(m, "etcd", `Waiting for service "cri" to be "up"`)
}

// service is a service with the reason why it does not run or is not healthy; empty for a healthy one.
func service(id, state, why string) *pb.ServiceInfo {
	health, message := &pb.ServiceHealth{Unknown: true}, why
	if state == "Running" {
		health, message = &pb.ServiceHealth{Healthy: why == "", LastMessage: why}, "Health check successful"
		if why != "" {
			message = "Health check failed: " + why
		}
	}
	events := &pb.ServiceEvents{Events: []*pb.ServiceEvent{
		{Msg: message, State: state, Ts: timestamppb.New(time.Now())}}}
	return &pb.ServiceInfo{Id: id, State: state, Health: health, Events: events}
}
