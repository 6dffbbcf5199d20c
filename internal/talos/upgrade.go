package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/foreign"
)

// installBound is the limit of talosctl: a machine that loses power meanwhile never closes the stream.
const installBound = 30 * time.Minute

// Install pulls an installer image and installs it beside the running system, which goes on until the machine
// restarts. A failure leaves the machine as it is. say gets the progress.
//
// Releases whose Traits say InstallRestarts know another call only: Install returns once the machine has
// accepted it, and the machine then checks etcd, drains itself, installs and restarts.
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
