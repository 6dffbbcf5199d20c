package talos

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// machineService answers for whichever machine the door has let the request through to.
type machineService struct {
	machineapi.UnimplementedMachineServiceServer
	fleet *Fleet
}

func (s *machineService) Version(ctx context.Context, _ *emptypb.Empty) (*machineapi.VersionResponse, error) {
	s.fleet.mu.Lock()
	defer s.fleet.unlock()
	v := &machineapi.Version{
		Version:  &machineapi.VersionInfo{Tag: s.fleet.config.TalosVersion, Sha: "emulated", Os: "linux", Arch: "amd64"},
		Platform: &machineapi.PlatformInfo{Name: "nocloud", Mode: cloud{}.String()},
	}
	if requestOf(ctx).target.installed != nil {
		v.Features = &machineapi.FeaturesInfo{Rbac: true}
	}
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{v}}, nil
}

// Bootstrap founds etcd on the machine. It looks no further than the machine's
// own disk, as Talos does: two machines bootstrapped are two clusters.
func (s *machineService) Bootstrap(ctx context.Context, _ *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	s.fleet.mu.Lock()
	defer s.fleet.unlock()
	m := requestOf(ctx).target
	switch {
	case !m.ready:
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	case !m.controlPlane():
		return nil, onlyOnControlPlanes("bootstrap")
	case m.etcd != nil:
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}
	s.fleet.found(m)
	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

func (s *machineService) Kubeconfig(_ *emptypb.Empty, out machineapi.MachineService_KubeconfigServer) error {
	c := s.configuration(out.Context())
	if !c.controlPlane {
		return onlyOnControlPlanes("kubeconfig")
	}
	archive, err := adminKubeconfig(c.config.Cluster())
	if err != nil {
		return err
	}
	return out.Send(&common.Data{Bytes: archive})
}

// configuration returns what the target has installed. Maintenance mode admits
// nobody to the calls that need it.
func (s *machineService) configuration(ctx context.Context) *installed {
	s.fleet.mu.Lock()
	defer s.fleet.unlock()
	if c := requestOf(ctx).target.installed; c != nil {
		return c
	}
	return &installed{} // reset since the request came in
}

// storageService answers the calls about disks.
type storageService struct {
	storage.UnimplementedStorageServiceServer
	fleet *Fleet
}

func (s *storageService) Disks(ctx context.Context, _ *emptypb.Empty) (*storage.DisksResponse, error) {
	s.fleet.mu.Lock()
	defer s.fleet.unlock()
	m := requestOf(ctx).target
	disks := m.Disks
	if len(disks) == 0 {
		disks = []Disk{{Device: "/dev/sda", Model: "QEMU HARDDISK", Size: 32 << 30}}
	}
	answer := &storage.Disks{}
	for i, d := range disks {
		answer.Disks = append(answer.Disks, &storage.Disk{
			DeviceName: d.Device, Model: d.Model, Serial: d.Serial, Size: d.Size, Type: storage.Disk_HDD,
			BusPath: "/pci0000:00/0000:00:05.0/" + strings.TrimPrefix(d.Device, "/dev/"), Subsystem: "/sys/class/block",
			SystemDisk: i == 0 && m.installed != nil,
		})
	}
	return &storage.DisksResponse{Messages: []*storage.Disks{answer}}, nil
}

// List knows one folder: etcd's, which has something in it from the bootstrap, or
// from the joining, on.
func (s *machineService) List(r *machineapi.ListRequest, out machineapi.MachineService_ListServer) error {
	s.fleet.mu.Lock()
	m := requestOf(out.Context()).target
	there, data := m.ready && m.controlPlane() && r.GetRoot() == "/var/lib/etcd", m.etcd != nil
	s.fleet.unlock()
	if !there {
		return status.Errorf(codes.Unknown, "lstat %s: no such file or directory", r.GetRoot())
	}
	files := []*machineapi.FileInfo{{Name: r.GetRoot(), RelativeName: ".", IsDir: true}}
	if data {
		files = append(files, &machineapi.FileInfo{Name: r.GetRoot() + "/member", RelativeName: "member", IsDir: true})
	}
	for _, f := range files {
		if err := out.Send(f); err != nil {
			return err
		}
	}
	return nil
}
