package talos

import (
	"cmp"
	"context"
	"crypto/sha256"
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

// streamTarget returns the machine that answers a stream of a service that Talos has since 1.13. The caller
// holds the lock.
func streamTarget(ctx context.Context, service string) (*machine, error) {
	m := requestOf(ctx).target
	if m.runs.minor() < 13 {
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

// digest is the digest of an image.
func digest(ref string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(ref))) }

// pinned is the name that an image has by its digest.
func pinned(ref string) string { return ref[:strings.LastIndex(ref, ":")] + "@" + digest(ref) }

func (s *imageService) List(req *pb.ImageServiceListRequest,
	out grpc.ServerStreamingServer[pb.ImageServiceListResponse]) error {
	if err := containerd(req.GetContainerd()); err != nil {
		return err
	}
	unlock := s.world.lock()
	m, err := streamTarget(out.Context(), "ImageService")
	if err != nil {
		unlock()
		return err
	}
	names := slices.Sorted(maps.Keys(m.images))
	unlock()
	for _, name := range names {
		_, of, isPinned := strings.Cut(name, "@")
		if !isPinned {
			of = digest(name)
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
	if err := containerd(req.GetContainerd()); err != nil {
		return err
	}
	unlock := s.world.lock()
	m, err := streamTarget(out.Context(), "ImageService")
	if err != nil {
		unlock()
		return err
	}
	ref := req.GetImageRef()
	image, has := m.images[ref]
	if !has {
		image, err = s.world.resolve(m, ref)
	}
	if err != nil {
		unlock()
		if errors.Is(err, errNotFound) {
			return status.Errorf(codes.NotFound, "error pulling image: %s", err)
		}
		return err
	}
	name := ref
	if !strings.Contains(ref, "@") {
		name = pinned(ref)
	}
	takes := s.world.config.Delays.Pull
	if has {
		takes = 0
	}
	up, done := m.up, s.world.within(m, takes, func() {
		if m.images == nil {
			m.images = map[string]system{}
		}
		m.images[ref], m.images[name] = image, image
	})
	unlock()
	for layer := range 2 {
		if has {
			break
		}
		if err := out.Send(&pb.ImageServicePullResponse{Response: &pb.ImageServicePullResponse_PullProgress{
			PullProgress: &pb.ImageServicePullProgress{LayerId: digest(fmt.Sprint(ref, layer)),
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
	var image system
	if err == nil {
		image, err = installable(m, req)
	}
	if err != nil {
		unlock()
		return err
	}
	m.installing = true
	refused := preflight(m.runs, image)
	takes := s.world.config.Delays.Install
	if refused != nil {
		takes = 0
	}
	up, done := m.up, s.world.within(m, takes, func() {
		m.installing = false
		if refused == nil {
			m.boots.install(image)
		}
	})
	host := m.runs
	unlock()

	before, after, code := transcript(host, image, refused)
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
func installable(m *machine, req *pb.LifecycleServiceUpgradeRequest) (system, error) {
	name := req.GetSource().GetImageName()
	switch {
	case m.installing:
		return system{}, status.Error(codes.FailedPrecondition,
			"another installation/upgrade is already in progress")
	case m.installed == nil:
		return system{}, status.Error(codes.FailedPrecondition, "machine is not installed")
	case name == "":
		return system{}, status.Error(codes.InvalidArgument, "installer image name is required")
	}
	err := containerd(req.GetContainerd())
	image, has := m.images[name]
	if err == nil && !has {
		err = fmt.Errorf("installer image %q not found in containerd store: image %q: "+
			"not found", name, name)
	}
	if err != nil {
		return system{}, status.Errorf(codes.Internal, "upgrade failed: %v", err)
	}
	return image, nil
}

// transcript is what an installer prints before and after it works. It arrives in parts that are no lines.
func transcript(host, image system, refused error) (before, after string, code int32) {
	log := func(lines ...string) (text string) {
		for _, line := range lines {
			text += time.Now().Format("2006/01/02 15:04:05 ") + line + "\n"
		}
		return text
	}
	text := log("running Talos installer "+image.release, "running pre-flight checks",
		"host Talos version: "+cmp.Or(host.release, iso))
	if refused != nil {
		text += "Error: pre-flight checks failed: " + refused.Error() + "\n"
		code = 1
	} else {
		text += log("all pre-flight checks successful",
			"copying /usr/install/amd64/vmlinuz to /boot/B/vmlinuz",
			"copying /usr/install/amd64/initramfs.xz to /boot/B/initramfs.xz",
			"writing /boot/grub/grub.cfg to disk", "installation of "+image.release+" complete")
	}
	half := len(text) / 2
	return text[:half], text[half:], code
}
