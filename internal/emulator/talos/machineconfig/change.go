package machineconfig

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// live are the fields of the machine section, by their names in Go, that change without a restart. The
// sections debug and cluster do so as a whole, and every document but v1alpha1
// (internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_runtime.go).
var live = []string{
	"MachineCA", "MachineAcceptedCAs", "MachineCertSANs", // of the API
	"MachineControlPlane", "MachineKubelet", "MachinePods", "MachineSeccompProfiles", "MachineNodeLabels",
	"MachineNodeAnnotations", "MachineNodeTaints", // of Kubernetes
	"MachineTime", "MachineNetwork", "MachineSysctls", "MachineSysfs", "MachineKernel", "MachineLogging",
	"MachineRegistries", "MachineInstall",
}

// liveFeatures are those of the features.
var liveFeatures = []string{"KubernetesTalosAPIAccessConfig", "KubePrismSupport", "HostDNSSupport",
	"ImageCacheSupport", "FeatureNodeAddressSortAlgorithm"}

// NeedsRestart returns the error of a change that needs a restart.
func (c *Config) NeedsRestart(next *Config) error {
	was, is := c.Provider.RawV1Alpha1(), next.Provider.RawV1Alpha1().DeepCopy()
	is.ConfigDebug, is.ClusterConfig = was.ConfigDebug, was.ClusterConfig
	if is.MachineConfig != nil && was.MachineConfig != nil {
		keep(is.MachineConfig, was.MachineConfig, live)
		if is.MachineConfig.MachineFeatures != nil && was.MachineConfig.MachineFeatures != nil {
			keep(is.MachineConfig.MachineFeatures, was.MachineConfig.MachineFeatures, liveFeatures)
		}
	}
	if reflect.DeepEqual(was, is) {
		return nil
	}
	diff, err := diffOf(container.NewV1Alpha1(was), container.NewV1Alpha1(is))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}
	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}

// keep sets fields of one struct to their values in another.
func keep[T v1alpha1.MachineConfig | v1alpha1.FeaturesConfig](to, from *T, fields []string) {
	for _, field := range fields {
		reflect.ValueOf(to).Elem().FieldByName(field).Set(reflect.ValueOf(from).Elem().FieldByName(field))
	}
}

// Difference is what a dry run shows of two configurations.
func Difference(now, next *Config) (string, error) {
	var before config.Encoder
	if now != nil {
		before = now.Provider
	}
	text, err := diffOf(before, next.Provider)
	if err != nil {
		return "", fmt.Errorf("failed to generate diff: %w", err)
	}
	return "Config diff:\n\n" + cmp.Or(text, "No changes."), nil
}

// diffOf shows two configurations as one hunk of a unified diff: what differs lies between what they begin
// with and what they end with.
func diffOf(was, is config.Encoder) (string, error) {
	var texts [2][]string
	for i, c := range []config.Encoder{was, is} {
		if c == nil {
			continue
		}
		text, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
		if err != nil {
			return "", err
		}
		texts[i] = strings.SplitAfter(string(text), "\n")
	}
	a, b := texts[0], texts[1]
	same, end := 0, 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	for end < min(len(a), len(b))-same && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	gone, added := a[same:len(a)-end], b[same:len(b)-end]
	if len(gone)+len(added) == 0 {
		return "", nil
	}
	text := fmt.Sprintf("--- a\n+++ b\n@@ -%d,%d +%d,%d @@\n", same+1, len(gone), same+1, len(added))
	return text + prefixed("-", gone) + prefixed("+", added), nil
}

func prefixed(sign string, lines []string) (text string) {
	for _, line := range lines {
		text += sign + strings.TrimSuffix(line, "\n") + "\n"
	}
	return text
}
