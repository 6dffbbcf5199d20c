package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/hashicorp/go-version"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"go.yaml.in/yaml/v3"

	"github.com/ephemeral-castle/castle/internal/effect"
)

// immediate says what Talos does when a part of the v1alpha1 document changes while it runs. The longest path
// that fits decides. A part without a row restarts the machine: that is how Talos itself decides
// (internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_runtime.go, CanApplyImmediate, v1.13).
var immediate = effect.Table(map[effect.Kind]string{
	effect.None: `debug machine.acceptedCAs machine.certSANs machine.features.hostDNS
		machine.features.imageCache machine.features.kubernetesTalosAPIAccess machine.install
		machine.kernel machine.kubelet machine.logging machine.nodeAnnotations machine.nodeLabels
		machine.nodeTaints machine.pods machine.registries machine.seccompProfiles machine.sysctls
		machine.sysfs machine.time cluster.adminKubeconfig cluster.apiServer.certSANs
		cluster.allowSchedulingOnControlPlanes
		cluster.clusterName cluster.extraManifests cluster.extraManifestHeaders cluster.inlineManifests
		cluster.token`,
	effect.Interrupts: `machine.ca machine.controlPlane machine.features.kubePrism
		machine.features.nodeAddressSortAlgorithm machine.kubelet.nodeIP machine.network cluster`,
	effect.Impossible: `cluster.ca cluster.controlPlane.endpoint cluster.id
		cluster.network.cni cluster.network.dnsDomain cluster.network.podSubnets
		cluster.network.serviceSubnets
		cluster.secret cluster.secretboxEncryptionSecret cluster.aescbcEncryptionSecret`,
})

// documents says the same of the other documents, by their kind. One without a row restarts the machine.
var documents = effect.Table(map[effect.Kind]string{
	effect.None: `EventSinkConfig KmsgLogConfig RegistryMirrorConfig ResolverConfig TimeSyncConfig
		TrustedRootsConfig WatchdogTimerConfig ZswapConfig StaticHostConfig RegistryAuthConfig
		RegistryTLSConfig`,
	effect.Interrupts: `ExistingVolumeConfig ExtensionServiceConfig SwapVolumeConfig BondConfig
		BridgeConfig DHCPv4Config EthernetConfig Layer2VIPConfig LinkAliasConfig LinkConfig VLANConfig
		NetworkDefaultActionConfig NetworkRuleConfig KubespanEndpointsConfig`,
	effect.LosesData:  `RawVolumeConfig UserVolumeConfig`,
	effect.Impossible: `HostnameConfig`,
})

// images are the parts whose tag is the release of Kubernetes, those of the control plane first.
var images = []string{"cluster.apiServer.image", "cluster.controllerManager.image",
	"cluster.scheduler.image", "cluster.proxy.image", "machine.kubelet.image"}

// Effects returns what a change of its configuration does to a machine that runs. The texts name parts, and
// no value but releases: a configuration holds keys.
func Effects(was, is []byte) ([]effect.Effect, error) {
	before, err := readDocuments(was)
	if err != nil {
		return nil, fmt.Errorf("the machine's configuration: %w", err)
	}
	after, err := readDocuments(is)
	if err != nil {
		return nil, fmt.Errorf("the new configuration: %w", err)
	}
	var all []effect.Effect
	parts := differingParts("", before[""], after[""])
	if release, found := releaseEffect(before[""], after[""]); found {
		all = append(all, release)
		parts = slices.DeleteFunc(parts, func(part string) bool { return slices.Contains(images, part) })
	}
	for _, part := range parts {
		if kind := effect.Lookup(immediate, part, effect.Restarts); kind != effect.None {
			all = append(all, effect.Effect{Kind: kind, Text: part, Remedy: remedyOf(kind)})
		}
	}
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, had := before[name]
		if name == "" || reflect.DeepEqual(before[name], after[name]) {
			continue
		}
		kind := effect.Lookup(documents, strings.SplitN(name, " ", 2)[0], effect.Restarts)
		if isNewVolume := !had && kind == effect.LosesData; kind != effect.None && !isNewVolume {
			all = append(all, effect.Effect{Kind: kind, Text: name, Remedy: remedyOf(kind)})
		}
	}
	return all, nil
}

func remedyOf(kind effect.Kind) string {
	if kind == effect.Impossible {
		return "a running cluster keeps it: set the former value again, or castle recreate"
	}
	return ""
}

// readDocuments returns the documents of a configuration by kind and name. That of v1alpha1 has neither.
func readDocuments(text []byte) (map[string]map[string]any, error) {
	all := map[string]map[string]any{}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document map[string]any
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, errors.New("not valid YAML") // the error would quote it
		}
		kind, _ := document["kind"].(string)
		name, _ := document["name"].(string)
		all[strings.TrimSpace(kind+" "+name)], _ = withoutEmpty(document).(map[string]any)
	}
}

// withoutEmpty removes what is null or empty: talosctl writes it, and the provider does not.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		left := map[string]any{}
		for key, one := range v {
			if one = withoutEmpty(one); one != nil {
				left[key] = one
			}
		}
		if len(left) == 0 {
			return nil
		}
		return left
	case []any:
		if len(v) == 0 {
			return nil
		}
	}
	return value
}

// differingParts lists the paths at which two objects differ. A list is one part.
func differingParts(at string, was, is map[string]any) (all []string) {
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		path := strings.TrimPrefix(at+"."+key, ".")
		before, hadObject := was[key].(map[string]any)
		after, hasObject := is[key].(map[string]any)
		switch {
		case reflect.DeepEqual(was[key], is[key]):
		case (hadObject || was[key] == nil) && (hasObject || is[key] == nil) && (hadObject || hasObject):
			all = append(all, differingParts(path, before, after)...)
		default:
			all = append(all, path)
		}
	}
	return all
}

// releaseEffect compares the releases of Kubernetes that two configurations name.
func releaseEffect(was, is map[string]any) (effect.Effect, bool) {
	for _, path := range images {
		before, after := tagAt(was, path), tagAt(is, path)
		if before == after || before == "" || after == "" {
			continue
		}
		e := effect.Effect{Kind: effect.Interrupts, Text: fmt.Sprintf("Kubernetes %s → %s restarts its part "+
			"of Kubernetes", before, after)}
		from, err := version.NewVersion(before)
		to, unread := version.NewVersion(after)
		if errors.Join(err, unread) != nil {
			return e, true
		}
		minor := from.Segments()[1] + 1
		switch {
		case to.LessThan(from):
			e.Kind = effect.Impossible
			e.Text = fmt.Sprintf("Kubernetes %s → %s goes back", before, after)
			e.Remedy = fmt.Sprintf("Kubernetes supports no way back: set kubernetes_version = %q again, or "+
				"castle recreate", before)
		case to.Segments()[0] != from.Segments()[0] || to.Segments()[1] > minor:
			e.Kind = effect.Impossible
			e.Text = fmt.Sprintf("Kubernetes %s → %s skips a minor release", before, after)
			e.Remedy = fmt.Sprintf("roll out a release of %d.%d first", from.Segments()[0], minor)
		}
		return e, true
	}
	return effect.Effect{}, false
}

// tagAt returns the release that the image at a path has as its tag, without its v.
func tagAt(document map[string]any, path string) string {
	image, _, _ := strings.Cut(stringAt(document, path), "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return strings.TrimPrefix(tag, "v")
}

// stringAt returns the text at a path; empty if there is none.
func stringAt(document map[string]any, path string) string {
	var at any = document
	for step := range strings.SplitSeq(path, ".") {
		object, _ := at.(map[string]any)
		at = object[step]
	}
	text, _ := at.(string)
	return text
}

// ActiveConfig reads the configuration that a machine has now. It holds keys.
func ActiveConfig(ctx context.Context, talosconfig []byte, address string) (text []byte, err error) {
	m, err := newMachines(talosconfig, nil)
	if err != nil {
		return nil, err
	}
	p := m.call(ctx, address, "its configuration", func(c *client.Client) error {
		text, err = configText(ctx, c, config.ActiveID)
		return err
	})
	if p != nil {
		return nil, fmt.Errorf("%s: %s", hostOf(address), p.reason)
	}
	return text, nil
}

// configText reads the configuration that is active, or the one that a change has brought to the disk.
func configText(ctx context.Context, c *client.Client, id string) ([]byte, error) {
	found, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, id)
	if err != nil {
		return nil, err
	}
	return found.Provider().Bytes()
}

// Configured is what a machine's configuration says about what the machine runs.
type Configured struct {
	ControlPlane bool
	Installer    string // the image that installs Talos
	Kubelet      string // its release: 1.36.3
	APIServer    string // likewise; empty on workers
}

// ReadConfigured reads a machine's configuration.
func ReadConfigured(text []byte) (Configured, error) {
	documents, err := readDocuments(text)
	if err != nil {
		return Configured{}, err
	}
	main := documents[""]
	machine, _ := main["machine"].(map[string]any)
	install, _ := machine["install"].(map[string]any)
	c := Configured{ControlPlane: machine["type"] == "controlplane",
		Kubelet: tagAt(main, "machine.kubelet.image")}
	c.Installer, _ = install["image"].(string)
	if c.ControlPlane {
		c.APIServer = tagAt(main, "cluster.apiServer.image")
	}
	return c, nil
}

// ControlPlaneImages are the parts of a configuration that name the images of Kubernetes' control plane.
func ControlPlaneImages() []string { return images[:len(images)-1] }

// installerImage is an installer of the image factory: its schematic and its release.
var installerImage = regexp.MustCompile(`/([0-9a-f]{64}):(v[^@]+)`)

// Installs returns the schematic and the release of Talos that an installer image installs. The schematic is
// empty for an image of another origin.
func Installs(image string) (schematic, release string) {
	if m := installerImage.FindStringSubmatch(image); m != nil {
		return m[1], m[2]
	}
	image, _, _ = strings.Cut(image, "@")
	_, release, _ = strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return "", release
}
