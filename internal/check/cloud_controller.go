package check

import (
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// uninitialized is the taint of a node whose kubelet waits for a cloud controller manager.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// checkCloudController finds a cluster whose nodes keep that taint: neither a stage has a gate that waits for
// its removal, nor a manifest of Talos brings what tolerates it.
func checkCloudController(c *cluster, report reporter, first rendered) {
	control := first.config.Cluster()
	waits := func(s *config.Stage) bool {
		return slices.ContainsFunc(s.Gates, func(g *config.Gate) bool {
			values, _ := g.Values(config.Scope{Outputs: c.outputs()}) // what is not known is absent
			return slices.Contains(tfeval.Strings(values["untainted"]), uninitialized)
		})
	}
	brings := len(control.ExtraManifestURLs()) > 0 || slices.ContainsFunc(c.config.Disabled, waits) ||
		slices.ContainsFunc(c.config.Stages, waits)
	for _, m := range control.InlineManifests() {
		brings = brings || strings.Contains(m.Contents(), uninitialized)
	}
	if brings || !control.ExternalCloudProvider().Enabled() {
		return
	}
	choice := c.variable("external_cloud_provider")
	report("cloud-controller-missing", origin(c, choice.At(), "externalCloudProvider"),
		"external_cloud_provider: no stage brings a cloud controller manager",
		"New nodes have the taint %s until one removes it, and Pods that do not tolerate it, such as "+
			"Flux's, do not run there. Add to clusters/%s/cluster.hcl: stage \"hcloud-controller\" { source "+
			"= \"networking/hcloud-controller\" }; or give the gate \"nodes\" of a stage of yours untainted "+
			"= [\"%s\"]; or leave external_cloud_provider out.", uninitialized, c.label, uninitialized)
}
