package talos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/installer"
)

// imageService pulls installers since Talos 1.13 (internal/app/images/images.go). It knows no other images.
type imageService struct {
	pb.UnimplementedImageServiceServer
	world *world
}

// lifecycleService installs them (internal/app/lifecycle/lifecycle.go).
type lifecycleService struct {
	pb.UnimplementedLifecycleServiceServer
	world *world
}

// resolve finds the system of an installer image as a machine pulls it.
func (w *world) resolve(m *machine, ref string) (installer.System, error) {
	hosts := slices.Clone(w.config.Registries)
	if m.installed != nil {
		for mirrored := range m.installed.Provider.RegistryMirrorConfigs() {
			hosts = append(hosts, mirrored)
		}
	}
	return installer.Resolve(ref, hosts, w.config.HasSchematic)
}

// streamTarget returns the machine that answers a stream of a service that Talos has since 1.13. The caller
// holds the lock.
func streamTarget(ctx context.Context, service string) (*machine, error) {
	m := requestOf(ctx).Target
	if m.runs.Minor() < 13 {
		return nil, status.Error(codes.Unimplemented, "unknown service machine."+service)
	}
	return m, nil
}

// containerd refuses an instance that is none.
func containerd(c *common.ContainerdInstance) error {
	switch namespace := c.GetNamespace(); {
	case namespace == common.ContainerdNamespace_NS_UNKNOWN:
		return status.Errorf(codes.InvalidArgument, "invalid containerd namespace %s", namespace)
	case c.GetDriver() == common.ContainerDriver_CONTAINERD && namespace == common.ContainerdNamespace_NS_CRI:
		return status.Error(codes.InvalidArgument, "cannot use CRI namespace with containerd driver")
	}
	return nil
}

// hold takes the lock for a stream about images, and returns the machine that answers it.
func (s *imageService) hold(ctx context.Context, c *common.ContainerdInstance) (*machine, func(), error) {
	if err := containerd(c); err != nil {
		return nil, nil, err
	}
	unlock := s.world.lock()
	m, err := streamTarget(ctx, "ImageService")
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return m, unlock, nil
}

func (s *imageService) List(req *pb.ImageServiceListRequest,
	out grpc.ServerStreamingServer[pb.ImageServiceListResponse]) error {
	m, unlock, err := s.hold(out.Context(), req.GetContainerd())
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(m.images))
	unlock()
	for _, name := range names {
		_, of, isPinned := strings.Cut(name, "@")
		if !isPinned {
			of = installer.Digest(name)
		}
		if err := out.Send(&pb.ImageServiceListResponse{Name: name, Digest: of, Size: 160 << 20,
			CreatedAt: timestamppb.New(time.Unix(0, 0))}); err != nil {
			return err
		}
	}
	return nil
}

// Pull reports the progress of each layer, and at last the name of the image by its digest. An image that is
// there is not pulled again.
func (s *imageService) Pull(req *pb.ImageServicePullRequest,
	out grpc.ServerStreamingServer[pb.ImageServicePullResponse]) error {
	m, unlock, err := s.hold(out.Context(), req.GetContainerd())
	if err != nil {
		return err
	}
	ref := req.GetImageRef()
	image, has := m.images[ref]
	if !has {
		image, err = s.world.resolve(m, ref)
	}
	if err != nil {
		unlock()
		if errors.Is(err, installer.ErrNotFound) {
			return status.Errorf(codes.NotFound, "error pulling image: %s", err)
		}
		return err
	}
	name := ref
	if !strings.Contains(ref, "@") {
		name = installer.Pinned(ref)
	}
	takes := s.world.config.Delays.Pull
	if has {
		takes = 0
	}
	up, done := m.up, s.world.within(m, takes, func() {
		if m.images == nil {
			m.images = map[string]installer.System{}
		}
		m.images[ref], m.images[name] = image, image
	})
	unlock()
	for layer := range 2 {
		if has {
			break
		}
		if err := out.Send(&pb.ImageServicePullResponse{Response: &pb.ImageServicePullResponse_PullProgress{
			PullProgress: &pb.ImageServicePullProgress{LayerId: installer.Digest(fmt.Sprint(ref, layer)),
				Progress: &pb.ImageServicePullLayerProgress{Total: 80 << 20,
					Elapsed: &durationpb.Duration{}}},
		}}); err != nil {
			return err
		}
	}
	if err := await(out.Context(), up, done); err != nil {
		return err
	}
	return out.Send(&pb.ImageServicePullResponse{Response: &pb.ImageServicePullResponse_Name{Name: name}})
}

// await waits for what a stream has begun. A machine that goes down breaks its streams.
func await(ctx, up context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-up.Done():
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Upgrade runs an installer that was pulled, and changes only what boots next. The installer goes on if its
// caller goes away. Its failure is an exit code, and no error.
func (s *lifecycleService) Upgrade(req *pb.LifecycleServiceUpgradeRequest,
	out grpc.ServerStreamingServer[pb.LifecycleServiceUpgradeResponse]) error {
	unlock := s.world.lock()
	m, err := streamTarget(out.Context(), "LifecycleService")
	var image installer.System
	if err == nil {
		image, err = installable(m, req)
	}
	if err != nil {
		unlock()
		return err
	}
	m.installing = true
	refused := installer.Preflight(m.runs, image)
	takes := s.world.config.Delays.Install
	if refused != nil {
		takes = 0
	}
	up, done := m.up, s.world.within(m, takes, func() {
		m.installing = false
		if refused == nil {
			m.boots.Install(image)
		}
	})
	host := m.runs
	unlock()

	before, after, code := installer.Transcript(host, image, refused)
	send := func(text string) error {
		return out.Send(&pb.LifecycleServiceUpgradeResponse{Progress: &pb.LifecycleServiceInstallProgress{
			Response: &pb.LifecycleServiceInstallProgress_Message{Message: text}}})
	}
	if err := send(before); err != nil {
		return err
	}
	if err := await(out.Context(), up, done); err != nil {
		return err
	}
	if err := send(after); err != nil {
		return err
	}
	return out.Send(&pb.LifecycleServiceUpgradeResponse{Progress: &pb.LifecycleServiceInstallProgress{
		Response: &pb.LifecycleServiceInstallProgress_ExitCode{ExitCode: code}}})
}

// installable returns the image of a request, or why the machine does not install it.
func installable(m *machine, req *pb.LifecycleServiceUpgradeRequest) (installer.System, error) {
	name := req.GetSource().GetImageName()
	switch {
	case m.installing:
		return installer.System{}, status.Error(codes.FailedPrecondition,
			"another installation/upgrade is already in progress")
	case m.installed == nil:
		return installer.System{}, status.Error(codes.FailedPrecondition, "machine is not installed")
	case name == "":
		return installer.System{}, status.Error(codes.InvalidArgument, "installer image name is required")
	}
	err := containerd(req.GetContainerd())
	image, has := m.images[name]
	if err == nil && !has {
		err = fmt.Errorf("installer image %q not found in containerd store: image %q: "+
			"not found", name, name)
	}
	if err != nil {
		return installer.System{}, status.Errorf(codes.Internal, "upgrade failed: %v", err)
	}
	return image, nil
}
