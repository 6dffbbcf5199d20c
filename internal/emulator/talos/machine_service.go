package talos

import (
	"context"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// machineService answers for the target of a request. The proxy holds the fleet's
// mutex while a unary call runs; streams take it themselves.
type machineService struct {
	pb.UnimplementedMachineServiceServer
	world *world
	power *power
	etcd  *etcd
}

func onlyOnControlPlanes(api string) error {
	return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", api)
}

func (s *machineService) Version(ctx context.Context, _ *emptypb.Empty) (*pb.VersionResponse, error) {
	m := requestOf(ctx).target
	v := &pb.Version{
		Version:  &pb.VersionInfo{Tag: m.release, Sha: "emulated", Os: "linux", Arch: "amd64"},
		Platform: &pb.PlatformInfo{Name: "nocloud", Mode: cloud{}.String()},
	}
	if m.installed != nil {
		v.Features = &pb.FeaturesInfo{Rbac: true}
	}
	return &pb.VersionResponse{Messages: []*pb.Version{v}}, nil
}

// ApplyConfiguration accepts a configuration from anyone in maintenance mode, and from admins afterwards. The
// first one installs the machine: its API goes down and returns with other certificates.
func (s *machineService) ApplyConfiguration(
	ctx context.Context, req *pb.ApplyConfigurationRequest,
) (*pb.ApplyConfigurationResponse, error) {
	r := requestOf(ctx)
	m := r.target
	if m.installed != nil && !r.roles.Includes(role.Admin) {
		return nil, notAuthorized()
	}
	c, warnings, err := parse(req.GetData())
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case c == nil && m.installed != nil:
		return nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain "+
			"v1alpha1 config, did you mean to patch the machine config instead?")
	}
	mode, details := applyMode(m.installed, c, req.GetMode())
	if req.GetDryRun() {
		details = fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\n", details)
	} else if c != nil { // a configuration without a machine section leaves maintenance mode as it is
		s.power.apply(m, c, mode)
	}
	return &pb.ApplyConfigurationResponse{Messages: []*pb.ApplyConfiguration{
		{Mode: mode, Warnings: warnings, ModeDetails: details},
	}}, nil
}

// applyMode decides how next comes into force. The emulator reboots only for
// another role or CA; Talos has a longer list.
func applyMode(
	now, next *installed, mode pb.ApplyConfigurationRequest_Mode,
) (_ pb.ApplyConfigurationRequest_Mode, details string) {
	const reboot, auto = pb.ApplyConfigurationRequest_REBOOT, pb.ApplyConfigurationRequest_AUTO
	switch {
	case mode == pb.ApplyConfigurationRequest_STAGED:
		return mode, "Staged configuration to be applied after the next reboot"
	case mode == reboot && now != nil:
	case mode == auto && now != nil && (now.controlPlane != next.controlPlane || now.ca != next.ca):
	case mode == reboot || mode == auto:
		return pb.ApplyConfigurationRequest_NO_REBOOT, "Applied configuration without a reboot"
	default:
		return mode, "Applied configuration without a reboot"
	}
	return reboot, "Applied configuration with a reboot"
}

// Bootstrap founds etcd on the machine. Like Talos, it checks only the machine's
// own disk: two bootstrapped machines are two clusters.
func (s *machineService) Bootstrap(
	ctx context.Context, _ *pb.BootstrapRequest,
) (*pb.BootstrapResponse, error) {
	m := requestOf(ctx).target
	switch {
	case !m.ready:
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	case !m.controlPlane():
		return nil, onlyOnControlPlanes("bootstrap")
	case m.etcd != nil:
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}
	s.etcd.found(m)
	return &pb.BootstrapResponse{Messages: []*pb.Bootstrap{{}}}, nil
}

// actor is the id of a sequence that a caller started.
const actor = "00000000-0000-4000-8000-000000000000"

func (s *machineService) Reboot(ctx context.Context, _ *pb.RebootRequest) (*pb.RebootResponse, error) {
	s.power.boot(requestOf(ctx).target, s.world.config.Delays.Boot)
	return &pb.RebootResponse{Messages: []*pb.Reboot{{ActorId: actor}}}, nil
}

// Upgrade writes the release of the image to the disk and boots it; until then the machine answers. The disk
// keeps everything else.
func (s *machineService) Upgrade(ctx context.Context, req *pb.UpgradeRequest) (*pb.UpgradeResponse, error) {
	m := requestOf(ctx).target
	s.world.report(m, runtime.MachineStageUpgrading)
	s.world.after(m, s.world.config.Delays.Install, func() {
		m.release = imageTag(req.GetImage())
		s.power.boot(m, s.world.config.Delays.Boot)
	})
	return &pb.UpgradeResponse{Messages: []*pb.Upgrade{{ActorId: actor}}}, nil
}

func (s *machineService) Shutdown(ctx context.Context, _ *pb.ShutdownRequest) (*pb.ShutdownResponse, error) {
	s.power.shutDown(requestOf(ctx).target)
	return &pb.ShutdownResponse{Messages: []*pb.Shutdown{{ActorId: actor}}}, nil
}

// Reset leaves etcd if it is graceful, wipes the disks, and starts in maintenance mode or switches off.
func (s *machineService) Reset(ctx context.Context, req *pb.ResetRequest) (*pb.ResetResponse, error) {
	m := requestOf(ctx).target
	s.etcd.resign(m)
	if m.etcd != nil && req.GetGraceful() {
		m.etcd.leave()
	}
	s.power.wipe(m)
	callLater(s.world, s.world.config.Hooks.OnReset, m.spec.Address)
	if req.GetReboot() {
		s.power.boot(m, s.world.config.Delays.Boot)
	} else {
		s.power.shutDown(m)
	}
	return &pb.ResetResponse{Messages: []*pb.Reset{{ActorId: actor}}}, nil
}

func (s *machineService) Kubeconfig(_ *emptypb.Empty, out pb.MachineService_KubeconfigServer) error {
	unlock := s.world.lock()
	c := requestOf(out.Context()).target.installed
	unlock()
	if c == nil || !c.controlPlane { // nil after a reset since the request came in
		return onlyOnControlPlanes("kubeconfig")
	}
	archive, err := adminKubeconfig(c.config.Cluster())
	if err != nil {
		return err
	}
	return out.Send(&common.Data{Bytes: archive})
}

// List knows one folder: etcd's, which has content after the bootstrap or the join.
func (s *machineService) List(r *pb.ListRequest, out pb.MachineService_ListServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).target
	exists, data := m.ready && m.controlPlane() && r.GetRoot() == "/var/lib/etcd", m.etcd != nil
	unlock()
	if !exists {
		return status.Errorf(codes.Unknown, "lstat %s: no such file or directory", r.GetRoot())
	}
	err := out.Send(&pb.FileInfo{Name: r.GetRoot(), RelativeName: ".", IsDir: true})
	if err != nil || !data {
		return err
	}
	return out.Send(&pb.FileInfo{Name: r.GetRoot() + "/member", RelativeName: "member", IsDir: true})
}

// storageService answers the calls about disks.
type storageService struct {
	storage.UnimplementedStorageServiceServer
}

func (*storageService) Disks(ctx context.Context, _ *emptypb.Empty) (*storage.DisksResponse, error) {
	m := requestOf(ctx).target
	disks := m.spec.Disks
	if len(disks) == 0 {
		disks = []Disk{{Device: "/dev/sda", Model: "QEMU HARDDISK", Size: 32 << 30}}
	}
	answer := &storage.Disks{}
	for i, d := range disks {
		answer.Disks = append(answer.Disks, &storage.Disk{
			DeviceName: d.Device, Model: d.Model, Serial: d.Serial, Size: d.Size, Type: storage.Disk_HDD,
			BusPath:    "/pci0000:00/0000:00:05.0/" + strings.TrimPrefix(d.Device, "/dev/"),
			Subsystem:  "/sys/class/block",
			SystemDisk: i == 0 && m.installed != nil,
		})
	}
	return &storage.DisksResponse{Messages: []*storage.Disks{answer}}, nil
}
