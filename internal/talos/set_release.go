package talos

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/status"
)

// SetRelease sets the images at these paths of the machine's active configuration, such as
// cluster.apiServer.image, to a release of Kubernetes. The repository stays, and a variant such as -slim. The
// machine does not restart. SetRelease reports false if the machine has the release already.
func (n *Node) SetRelease(ctx context.Context, release string, paths []string) (changed bool, err error) {
	err = n.call(ctx, attempt, "change its configuration",
		func(ctx context.Context, c *client.Client) error {
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
