package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/foreign"
)

// installBound is the limit of talosctl: a machine that loses power meanwhile never closes the stream.
const installBound = 30 * time.Minute

// Install pulls an installer image and installs it beside the running system, which goes on until the machine
// restarts. A failure leaves the machine as it is. say gets the progress. Releases whose Traits say
// InstallRestarts know another call only: Install returns once the machine has accepted it, and the machine
// then checks etcd, drains itself, installs and restarts.
func (n *Node) Install(ctx context.Context, image string, say func(string)) error {
	return n.call(ctx, installBound, "install Talos", func(ctx context.Context, c *client.Client) error {
		pulled, err := pull(ctx, c, image)
		switch {
		case status.Code(err) == codes.Unimplemented && !isOtherAPI(err):
			say("its Talos installs and restarts by itself")
			//lint:ignore SA1019 machines before v1.13 know no other call
			_, err := c.MachineClient.Upgrade(ctx, &machineapi.UpgradeRequest{Image: image})
			return err
		case err != nil:
			return err
		}
		say("has pulled " + foreign.Text(pulled))
		return wait.PollUntilContextCancel(ctx, n.poll, true, func(ctx context.Context) (bool, error) {
			err := install(ctx, c, pulled, say)
			if status.Code(err) == codes.FailedPrecondition && strings.Contains(err.Error(), "in progress") {
				say("another installation is in progress there: castle waits for its end")
				return false, nil // its caller may be gone
			}
			return err == nil, err
		})
	})
}

// Pull pulls an installer image ahead of Install. Releases without such a call pull it then.
func (n *Node) Pull(ctx context.Context, image string) error {
	return n.call(ctx, installBound, "pull Talos", func(ctx context.Context, c *client.Client) error {
		_, err := pull(ctx, c, image)
		if status.Code(err) == codes.Unimplemented && !isOtherAPI(err) {
			return nil
		}
		return err
	})
}

// containerd is where installers are pulled to and run.
func containerd() *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI,
		Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

// pull returns the name by which the machine now has the image.
func pull(ctx context.Context, c *client.Client, image string) (name string, err error) {
	stream, err := c.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{
		Containerd: containerd(), ImageRef: image})
	for err == nil {
		var answer *machineapi.ImageServicePullResponse
		if answer, err = stream.Recv(); answer.GetName() != "" {
			name = answer.GetName()
		}
	}
	if errors.Is(err, io.EOF) && name != "" {
		return name, nil
	}
	return "", err
}

// clock begins the lines of an installer.
var clock = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `)

// install runs the installer. Its exit code is no error of the call.
func install(ctx context.Context, c *client.Client, image string, say func(string)) error {
	stream, err := c.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: containerd(), Source: &machineapi.InstallArtifactsSource{ImageName: image}})
	if err != nil {
		return err
	}
	var line, last string // messages are parts of the installer's output, and not lines
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		switch progress := answer.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			lines := strings.Split(line+progress.Message, "\n")
			for _, text := range lines[:len(lines)-1] {
				last = foreign.Text(clock.ReplaceAllString(strings.TrimSpace(text), ""))
				say(last)
			}
			line = lines[len(lines)-1]
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			if progress.ExitCode == 0 {
				return nil
			}
			return fmt.Errorf("the installer has failed with exit code %d: %s", progress.ExitCode, last)
		}
	}
}

// SetRelease sets the images at these paths of the machine's active configuration, such as
// cluster.apiServer.image, to a release of Kubernetes. The repository stays, and a variant such as -slim. The
// machine does not restart. SetRelease reports false if the machine has the release already.
func (n *Node) SetRelease(ctx context.Context, release string, paths []string) (changed bool, err error) {
	err = n.call(ctx, attempt, "change its configuration", func(ctx context.Context, c *client.Client) error {
		active, err := configText(ctx, c, config.ActiveID)
		if err != nil {
			return err
		}
		patches, err := releasePatches(active, release, paths)
		if err != nil || len(patches) == 0 {
			return err
		}
		// Talos keeps one configuration on the disk. It has none in memory until the first change.
		disk, err := configText(ctx, c, config.PersistentID)
		switch {
		case err == nil && string(disk) != string(active):
			return errors.New("the configuration on its disk is not the active one, and castle would " +
				"overwrite it: restart the machine first")
		case err != nil && !state.IsNotFoundError(err):
			return err
		}
		patched, err := configpatcher.Apply(configpatcher.WithBytes(active), patches)
		var text []byte
		if err == nil {
			text, err = patched.Bytes()
		}
		if err == nil {
			_, err = c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: text,
				Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT})
		}
		if err != nil { // a difference may follow, with keys
			reason, _, _ := strings.Cut(status.Convert(err).Message(), "\n")
			return errors.New(reason)
		}
		changed = true
		return nil
	})
	return changed, err
}

// releasePatches bring the images at the paths to a release; none if they have it.
func releasePatches(text []byte, release string, paths []string) ([]configpatcher.Patch, error) {
	documents, err := readDocuments(text)
	if err != nil {
		return nil, err
	}
	var patches []string
	for _, path := range paths {
		was := stringAt(documents[""], path)
		if was == "" {
			return nil, fmt.Errorf("its configuration names no image at %s", path)
		}
		if is := retag(was, release); is != was {
			patch := strconv.Quote(is)
			for _, step := range slices.Backward(strings.Split(path, ".")) {
				patch = "{" + step + ": " + patch + "}"
			}
			patches = append(patches, patch)
		}
	}
	return configpatcher.LoadPatches(patches)
}

// tagged are the parts of an image: name, tag, variant, digest.
var tagged = regexp.MustCompile(`^(.+?)(:[^:/@]*?(-slim|-fat)?)?(@.*)?$`)

// retag replaces the release in an image's tag. A digest would contradict it.
func retag(image, release string) string {
	return tagged.ReplaceAllString(image, "${1}:v"+strings.TrimPrefix(release, "v")+"${3}")
}
