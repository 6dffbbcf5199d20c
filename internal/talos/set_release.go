package talos

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"go.yaml.in/yaml/v3"
)

// SetRelease sets the images at these paths of the machine's active configuration, such as
// cluster.apiServer.image, to a release of Kubernetes. The repository stays, and the flavour such as -slim.
// The machine does not restart. It reports false if the machine has the release already.
func (n *Node) SetRelease(ctx context.Context, release string, paths []string) (changed bool, err error) {
	err = n.call(ctx, attempt, "change its configuration",
		func(ctx context.Context, c *client.Client) error {
			changed = false
			active, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.ActiveID)
			if err != nil {
				return err
			}
			text, err := active.Provider().Bytes()
			if err != nil {
				return err
			}
			patch, err := releasePatch(text, release, paths)
			if err != nil || patch == nil {
				return err
			}
			if err := nothingStaged(ctx, c, text); err != nil {
				return err
			}
			patched, err := configpatcher.Apply(configpatcher.WithBytes(text), []configpatcher.Patch{patch})
			if err != nil {
				return err
			}
			if text, err = patched.Bytes(); err != nil {
				return err
			}
			_, err = c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: text,
				Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT})
			if err != nil {
				head, _, _ := strings.Cut(err.Error(), "\n") // a difference of configurations follows
				return errors.New(head)
			}
			changed = true
			return nil
		})
	return changed, err
}

// nothingStaged refuses to overwrite a configuration that waits for the machine's next start.
func nothingStaged(ctx context.Context, c *client.Client, active []byte) error {
	staged, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.PersistentID)
	if state.IsNotFoundError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := staged.Provider().Bytes()
	if err == nil && string(text) != string(active) {
		err = errors.New("another configuration waits for its restart: restart it first")
	}
	return err
}

// releasePatch is the patch that brings the images at the paths to a release; nil if they have it.
func releasePatch(text []byte, release string, paths []string) (configpatcher.Patch, error) {
	documents, err := readDocuments(text)
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	for _, path := range paths {
		was := stringAt(documents[""], path)
		if was == "" {
			return nil, fmt.Errorf("its configuration names no image at %s", path)
		}
		if is := retag(was, release); is != was {
			at := patch
			steps := strings.Split(path, ".")
			for _, step := range steps[:len(steps)-1] {
				if at[step] == nil {
					at[step] = map[string]any{}
				}
				at, _ = at[step].(map[string]any)
			}
			at[steps[len(steps)-1]] = is
		}
	}
	if len(patch) == 0 {
		return nil, nil
	}
	data, err := yaml.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return configpatcher.LoadPatch(data)
}

// flavour is the part of a tag that names a variant of the image.
var flavour = regexp.MustCompile(`-(slim|fat)$`)

// retag replaces the release in an image's tag. A digest would contradict it.
func retag(image, release string) string {
	image, _, _ = strings.Cut(image, "@")
	tag := strings.LastIndex(image, ":")
	if tag < strings.LastIndex(image, "/") || tag < 0 {
		tag = len(image)
	}
	return image[:tag] + ":v" + strings.TrimPrefix(release, "v") + flavour.FindString(image[tag:])
}
