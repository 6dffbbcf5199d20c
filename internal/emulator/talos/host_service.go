package talos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/etcd"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/installer"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/journal"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
)

// bootIDFile names the boot of a machine.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Read has a few files: those that Linux and Talos write for others to tell the system by, and the
// configuration on the disk.
func (s *machineService) Read(req *pb.ReadRequest, out pb.MachineService_ReadServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).Target
	content := map[string]string{
		bootIDFile:      m.bootID + "\n",
		"/proc/version": "Linux version emulated, Talos " + m.runs.Release + "\n",
		"/etc/hostname": m.hostname() + "\n",
		"/proc/cmdline": "talos.platform=nocloud console=tty0\n",
		"/etc/os-release": fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%[1]s\nPRETTY_NAME=\"Talos "+
			"(%[1]s)\"\n", m.runs.Release),
	}
	text, exists := content[req.GetPath()]
	if req.GetPath() == "/system/state/config.yaml" && m.installed != nil {
		data, err := m.persistent().Provider.Bytes()
		if err != nil {
			unlock()
			return err
		}
		text, exists = string(data), true
	}
	unlock()
	if !exists {
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", req.GetPath())
	}
	return out.SendMsg(&common.Data{Bytes: []byte(text)})
}

// Events sends an empty event at first, to show that it has begun. It ends with the machine's system.
func (s *machineService) Events(req *pb.EventsRequest, out pb.MachineService_EventsServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).Target
	from, up, at := m.events, m.up, m.events.First(req)
	unlock()
	if err := out.Send(&pb.Event{ActorId: req.GetWithActorId(), Data: &anypb.Any{}}); err != nil {
		return err
	}
	return from.Follow(out.Context(), up, at, s.world.lock, func(r journal.Report) error {
		if r.Event == nil || req.GetWithActorId() != "" && req.GetWithActorId() != r.Event.GetActorId() {
			return nil
		}
		return out.Send(proto.Clone(r.Event).(*pb.Event)) //nolint:errcheck // it is one
	})
}

// Dmesg is the log of the kernel, to which machined writes, too.
func (s *machineService) Dmesg(req *pb.DmesgRequest, out pb.MachineService_DmesgServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).Target
	from, up, at := m.events, m.up, 0
	if req.GetTail() {
		at = from.Len()
	}
	unlock()
	if !req.GetFollow() {
		up = nil
	}
	return from.Follow(out.Context(), up, at, s.world.lock, func(r journal.Report) error {
		if r.Text == "" {
			return nil
		}
		return out.Send(&common.Data{Bytes: fmt.Appendf(nil, "%s: %7s: [%s]: [talos] %s\n", "user",
			"warning", r.At.Format(time.RFC3339Nano), r.Text)})
	})
}

// Logs are those of Talos' services. No service runs here, so that each has the lines of machined that are
// about it.
func (s *machineService) Logs(req *pb.LogsRequest, out pb.MachineService_LogsServer) error {
	unlock := s.world.lock()
	m, id := requestOf(out.Context()).Target, req.GetId()
	from, up := m.events, m.up
	known := m.services[id] != nil
	pod := slices.ContainsFunc(m.containers(constants.K8sContainerdNamespace),
		func(c *pb.ContainerInfo) bool { return c.GetId() == id })
	unlock()
	switch {
	case req.GetNamespace() == constants.K8sContainerdNamespace && !pod && id != "kubelet":
		return fmt.Errorf("container %q not found", id)
	case req.GetNamespace() == constants.K8sContainerdNamespace && pod:
		return out.Send(&common.Data{Bytes: []byte("the log of this container is not emulated\n")})
	case !known:
		return fmt.Errorf("log %q was not registered", id)
	}
	about := func(r journal.Report) bool { return r.Text != "" && (id == "machined" || r.Service == id) }
	at := 0
	if tail := int(req.GetTailLines()); tail >= 0 {
		at = from.Last(tail, about)
	}
	if !req.GetFollow() {
		up = nil
	}
	return from.Follow(out.Context(), up, at, s.world.lock, func(r journal.Report) error {
		if !about(r) {
			return nil
		}
		return out.Send(&common.Data{Bytes: fmt.Appendf(nil, "%s [talos] %s\n",
			r.At.Format("2006/01/02 15:04:05"), r.Text)})
	})
}

// LogsContainers lists the services that have a log.
func (s *machineService) LogsContainers(ctx context.Context, _ *emptypb.Empty) (
	*pb.LogsContainersResponse, error) {
	var ids []string
	for _, info := range servicesOf(requestOf(ctx).Target) {
		ids = append(ids, info.GetId())
	}
	return &pb.LogsContainersResponse{Messages: []*pb.LogsContainer{{Ids: ids}}}, nil
}

// Containers are those of Talos' services, or of static Pods: nothing here knows the other Pods.
func (s *machineService) Containers(ctx context.Context, req *pb.ContainersRequest) (
	*pb.ContainersResponse, error) {
	all := requestOf(ctx).Target.containers(req.GetNamespace())
	return &pb.ContainersResponse{Messages: []*pb.Container{{Containers: all}}}, nil
}

func (m *machine) containers(namespace string) (all []*pb.ContainerInfo) {
	add := func(c *pb.ContainerInfo) {
		c.Namespace, c.Pid = namespace, uint32(1000+len(all))
		all = append(all, c)
	}
	switch {
	case namespace != constants.K8sContainerdNamespace:
		images := map[string]string{"apid": "talos/apid", "trustd": "talos/trustd",
			"etcd": "registry.k8s.io/etcd:v" + etcd.Release}
		if m.installed != nil {
			images["kubelet"] = m.installed.Provider.Machine().Kubelet().Image()
		}
		for _, s := range servicesOf(m) {
			if image := images[s.GetId()]; image != "" && s.GetState() == "Running" {
				add(&pb.ContainerInfo{Id: s.GetId(), PodId: s.GetId(), Name: s.GetId(), Image: image,
					InternalId: s.GetId(), Status: "RUNNING"})
			}
		}
	case m.ready && m.controlPlane():
		images := m.installed.StaticPods()
		for _, name := range machineconfig.Components {
			pod := "kube-system/" + name + "-" + m.hostname()
			id := installer.Digest(pod)[7:19]
			add(&pb.ContainerInfo{Id: pod, PodId: pod, Name: name + "-" + m.hostname(), InternalId: id,
				Image: "registry.k8s.io/pause:3.10.1", Status: "SANDBOX_READY"})
			add(&pb.ContainerInfo{Id: pod + ":" + name + ":" + id, PodId: pod, Name: name, InternalId: id,
				Image: images[name], Status: "CONTAINER_RUNNING"})
		}
	}
	return all
}

// Memory knows how much a machine has, and no more.
func (s *machineService) Memory(ctx context.Context, _ *emptypb.Empty) (*pb.MemoryResponse, error) {
	total := requestOf(ctx).Target.spec.Memory
	if total == 0 {
		total = 4 << 30
	}
	return &pb.MemoryResponse{Messages: []*pb.Memory{{Meminfo: &pb.MemInfo{Memtotal: total >> 10,
		Memavailable: total >> 11, Memfree: total >> 11}}}}, nil
}

// timeService has the clock of this computer, for the machine and for every time server.
type timeService struct {
	timeapi.UnimplementedTimeServiceServer
}

func (s *timeService) Time(ctx context.Context, _ *emptypb.Empty) (*timeapi.TimeResponse, error) {
	server := constants.DefaultNTPServer
	if m := requestOf(ctx).Target; m.installed != nil {
		if c := m.installed.Provider.NetworkTimeSyncConfig(); c != nil && len(c.Servers()) > 0 {
			server = c.Servers()[0]
		}
	}
	return s.TimeCheck(ctx, &timeapi.TimeRequest{Server: server})
}

func (*timeService) TimeCheck(_ context.Context, req *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	if req.GetServer() == "" {
		return nil, status.Error(codes.InvalidArgument, "ntp server is required")
	}
	now := timestamppb.New(time.Now())
	return &timeapi.TimeResponse{Messages: []*timeapi.Time{
		{Server: req.GetServer(), Localtime: now, Remotetime: now}}}, nil
}
