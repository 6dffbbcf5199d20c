package talos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/apid"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/etcd"
	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
)

// machineService answers for the target of a request. The proxy holds the fleet's
// mutex while a unary call runs; streams take it themselves.
type machineService struct {
	pb.UnimplementedMachineServiceServer
	world *world
	power *power
	etcd  *etcd.Etcd
}

// requestOf returns the request of a handler's context.
func requestOf(ctx context.Context) apid.Request[*machine] { return apid.RequestOf[*machine](ctx) }

func (s *machineService) Version(ctx context.Context, _ *emptypb.Empty) (*pb.VersionResponse, error) {
	m := requestOf(ctx).Target
	v := &pb.Version{
		Version:  &pb.VersionInfo{Tag: m.runs.Release, Sha: "emulated", Os: "linux", Arch: "amd64"},
		Platform: &pb.PlatformInfo{Name: "nocloud", Mode: "cloud"},
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
	m := r.Target
	if m.installed != nil && !r.Roles.Includes(role.Admin) {
		return nil, apid.NotAuthorized()
	}
	if m.applied {
		return nil, status.Error(codes.FailedPrecondition, "configuration was already applied and node is "+
			"rebooting, cannot apply more configuration changes until next reboot")
	}
	c, warnings, err := machineconfig.Parse(req.GetData())
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case c == nil && m.installed != nil:
		return nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain "+
			"v1alpha1 config, did you mean to patch the machine config instead?")
	}
	mode, details, err := applyMode(m, c, req.GetMode())
	if err != nil {
		return nil, err
	}
	switch {
	case req.GetDryRun():
		text := "Config diff:\n\nNo changes."
		if c != nil {
			text, err = machineconfig.Difference(m.installed, c)
		}
		if err != nil {
			return nil, err
		}
		details, warnings = fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\n%s", details, text), nil
	case c != nil: // a configuration without a machine section leaves maintenance mode as it is
		if mode == pb.ApplyConfigurationRequest_TRY {
			details += fmt.Sprintf("\nThe config is applied in 'try' mode and will be automatically "+
				"reverted back in %s", tryTimeout(req))
		}
		s.power.apply(m, c, req, mode)
	}
	return &pb.ApplyConfigurationResponse{Messages: []*pb.ApplyConfiguration{
		{Mode: mode, Warnings: warnings, ModeDetails: details},
	}}, nil
}

// Bootstrap founds etcd on the machine. Like Talos, it checks only the machine's
// own disk: two bootstrapped machines are two clusters.
func (s *machineService) Bootstrap(
	ctx context.Context, req *pb.BootstrapRequest,
) (*pb.BootstrapResponse, error) {
	m := requestOf(ctx).Target
	switch {
	case !m.ready:
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	case !m.controlPlane():
		return nil, apid.OnlyOnControlPlanes("bootstrap")
	case m.etcd.HasData():
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	case req.GetRecoverEtcd() && s.world.config.Hooks.Recover == nil:
		return nil, status.Error(codes.Unimplemented, "the emulator has no etcd to recover")
	case req.GetRecoverEtcd():
		s.etcd.Recover(m.etcd, req.GetRecoverSkipHashCheck())
	default:
		s.etcd.Found(m.etcd)
	}
	return &pb.BootstrapResponse{Messages: []*pb.Bootstrap{{}}}, nil
}

func (s *machineService) Shutdown(ctx context.Context, _ *pb.ShutdownRequest) (*pb.ShutdownResponse, error) {
	m, actor := requestOf(ctx).Target, uuid.NewString()
	s.world.sequence(m, actor, "shutdown", pb.SequenceEvent_START)
	s.world.stopsAll(m, actor, pb.TaskEvent_START)
	s.power.shutDown(m)
	return &pb.ShutdownResponse{Messages: []*pb.Shutdown{{ActorId: actor}}}, nil
}

func (s *machineService) Kubeconfig(_ *emptypb.Empty, out pb.MachineService_KubeconfigServer) error {
	unlock := s.world.lock()
	c := requestOf(out.Context()).Target.installed
	unlock()
	if c == nil || !c.ControlPlane { // nil after a reset since the request came in
		return apid.OnlyOnControlPlanes("kubeconfig")
	}
	config, err := c.AdminKubeconfig()
	if err != nil {
		return err
	}
	archive, err := pack("kubeconfig", config)
	if err != nil {
		return err
	}
	return out.Send(&common.Data{Bytes: archive})
}

// pack is a file as the API sends it: a gzipped tar of one file.
func pack(name string, content []byte) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	err := archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600, ModTime: time.Now(),
	})
	if err == nil {
		_, err = archive.Write(content)
	}
	err = errors.Join(err, archive.Close(), zip.Close())
	return out.Bytes(), err
}

// List knows one folder: etcd's, which has content after the bootstrap or the join.
func (s *machineService) List(r *pb.ListRequest, out pb.MachineService_ListServer) error {
	unlock := s.world.lock()
	m := requestOf(out.Context()).Target
	exists, data := m.ready && m.controlPlane() && r.GetRoot() == "/var/lib/etcd", m.etcd.HasData()
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
	m := requestOf(ctx).Target
	answer := &storage.Disks{}
	for i, d := range m.disks() {
		answer.Disks = append(answer.Disks, &storage.Disk{
			DeviceName: d.Device, Model: d.Model, Serial: d.Serial, Size: d.Size, Type: storage.Disk_HDD,
			BusPath:    "/pci0000:00/0000:00:05.0/" + strings.TrimPrefix(d.Device, "/dev/"),
			Subsystem:  "/sys/class/block",
			SystemDisk: i == 0 && m.installed != nil,
		})
	}
	return &storage.DisksResponse{Messages: []*storage.Disks{answer}}, nil
}
