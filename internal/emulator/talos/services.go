package talos

import (
	"cmp"
	"context"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

// ServiceList tells what the machine's services do, as `talosctl services` shows it.
func (s *machineService) ServiceList(ctx context.Context, _ *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	s.fleet.mu.Lock()
	defer s.fleet.unlock()
	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: services(requestOf(ctx).target)}}}, nil
}

// services lists them by name, as Talos does.
func services(m *machine) []*machineapi.ServiceInfo {
	var list []*machineapi.ServiceInfo
	for _, id := range []string{"apid", "auditd", "containerd", "machined", "syslogd", "udevd"} {
		list = append(list, healthy(id))
	}
	if m.installed != nil {
		list = append(list, afterCRI(m, "kubelet"), cri(m))
	}
	if m.controlPlane() {
		list = append(list, healthy("trustd"), etcdInfo(m))
	}
	slices.SortFunc(list, func(a, b *machineapi.ServiceInfo) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return list
}

func cri(m *machine) *machineapi.ServiceInfo {
	if m.ready {
		return healthy("cri")
	}
	return notYet("cri", "Waiting", "Waiting for network")
}

func afterCRI(m *machine, id string) *machineapi.ServiceInfo {
	if m.ready {
		return healthy(id)
	}
	return notYet(id, "Waiting", `Waiting for service "cri" to be "up"`)
}

// etcdInfo tells how far etcd has come. It prepares for as long as there is no
// cluster that lets it join; a learner runs, and fails its health check.
func etcdInfo(m *machine) *machineapi.ServiceInfo {
	switch {
	case !m.ready:
		return afterCRI(m, "etcd")
	case m.etcd == nil || !m.etcd.serves():
		return notYet("etcd", "Preparing", "Running pre state")
	case m.etcd.learner:
		return unhealthy("etcd", etcdNoLearners)
	case m.etcd.cluster.elect() == 0:
		return unhealthy("etcd", "context deadline exceeded")
	default:
		return healthy("etcd")
	}
}

func healthy(id string) *machineapi.ServiceInfo {
	return service(id, "Running", &machineapi.ServiceHealth{Healthy: true}, "Health check successful")
}

func unhealthy(id, why string) *machineapi.ServiceInfo {
	return service(id, "Running", &machineapi.ServiceHealth{LastMessage: why}, "Health check failed: "+why)
}

func notYet(id, state, said string) *machineapi.ServiceInfo {
	return service(id, state, &machineapi.ServiceHealth{Unknown: true}, said)
}

func service(id, state string, health *machineapi.ServiceHealth, said string) *machineapi.ServiceInfo {
	events := []*machineapi.ServiceEvent{{Msg: "Starting service", State: "Starting"}, {Msg: said, State: state}}
	return &machineapi.ServiceInfo{Id: id, State: state, Health: health, Events: &machineapi.ServiceEvents{Events: events}}
}
