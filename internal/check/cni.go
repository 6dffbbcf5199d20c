package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// cniOutput is the output of a stage that brings a network plugin; ciliumStage is the library's.
const (
	cniOutput   = "cni"
	ciliumStage = "platform/cilium"
)

// checkCNI finds a cluster whose nodes never get ready: no network plugin comes, or only one that waits.
func checkCNI(c *cluster, report reporter, first rendered) {
	control, choice := first.config.Cluster(), c.variable("cni")
	lacksPrism := func(r rendered) bool {
		return r.config != nil && !r.config.Machine().Features().KubePrism().Enabled()
	}
	none := control.Network().CNI().Name() == "none"
	brings := c.bringsCNI()
	waits := func(s *config.Stage) bool {
		return slices.ContainsFunc(s.Gates, func(g *config.Gate) bool {
			values, _ := g.Values(config.Scope{Outputs: c.outputs()})
			return g.Type.Name == "nodes" && (!values.Has("ready") || values.Bool("ready"))
		})
	}
	chosen := fmt.Sprintf("cni = %q", tfeval.Text(choice.Value))
	switch known := tfeval.Text(choice.Value) != ""; { // a stage of the user's may have no such variable
	case known && brings != nil && waits(first.stage):
		report("cni-twice", brings.At(), "stage "+brings.Name+": comes after the nodes that it makes ready",
			"With %s (%s), stage %s waits until all nodes are ready, and this stage waits for it. Set "+
				"cni = \"cilium\" for Cilium, or \"none\" for another network plugin; or remove this stage.",
			chosen, syntax.Place(choice.At()), first.stage.Name)
	case known && brings != nil && brings.Source == ciliumStage && control.Proxy().Enabled():
		report("cni-twice", choice.At(), chosen+": leaves kube-proxy, which Cilium replaces",
			"Stage %s (%s) installs Cilium without need of kube-proxy, and both would translate the "+
				"addresses of Services. Set cni = \"cilium\".", brings.Name, syntax.Place(brings.At()))
	case brings != nil && brings.Source == ciliumStage && slices.ContainsFunc(c.rendered, lacksPrism):
		report("kubeprism-off", origin(c, choice.At(), "kubePrism"), "KubePrism is off, and Cilium needs it",
			"Stage %s (%s) installs Cilium, whose agents ask the API at localhost:7445. Remove the patch of "+
				"machine.features.kubePrism.", brings.Name, syntax.Place(brings.At()))
	case !none || brings != nil:
	case manifestBringsCNI(control.InlineManifests(), control.ExtraManifestURLs()):
		if known && !slices.ContainsFunc(c.config.Stages, waits) {
			report("cni-missing", choice.At(), chosen+": no gate waits for the nodes", "A manifest of Talos "+
				"may bring the network plugin, and later stages begin without it. Write gate \"nodes\" "+
				"\"ready\" { when = true } in the block of stage %s in %s.", first.stage.Name,
				syntax.Place(first.stage.At()))
		}
	case waits(first.stage):
		report("cni-none", origin(c, origin(c, first.at, "cni"), "name: none"),
			"cluster.network.cni: none, and no manifest of Talos brings another",
			"Nodes get ready only with a CNI. Gate nodes.ready of stage %s waits for them, and every stage "+
				"behind it waits for the gate, Flux too. Remove the patch and set cni = \"cilium\" with "+
				"the stage %s; or add the CNI in cluster.inlineManifests or cluster.extraManifests of a "+
				"patch; Flux may adopt it later.", first.stage.Name, ciliumStage)
	case known:
		reportMissingCNI(c, report, choice)
	}
}

// reportMissingCNI reports that no stage brings the network plugin which the choice leaves out.
func reportMissingCNI(c *cluster, report reporter, choice config.Written) {
	chosen := tfeval.Text(choice.Value)
	block := fmt.Sprintf("clusters/%s/cluster.hcl: stage \"cilium\" { source = %q }", c.label, ciliumStage)
	fix := "Add to " + block
	if chosen == "none" {
		fix = "Add a stage of yours to the layer platform, with the output " + cniOutput +
			"; or set cni = \"cilium\" and add to " + block
	}
	report("cni-missing", choice.At(), fmt.Sprintf("cni = %q: no stage brings a network plugin", chosen),
		"Nodes get ready only with one, and every Pod waits for a node, those of Flux too. %s. Or set cni = "+
			"\"flannel\".", fix)
}

// bringsCNI is the stage of the platform that brings a network plugin, itself or through the stage that has
// its gates; nil if none does.
func (c *cluster) bringsCNI() *config.Stage {
	for _, s := range slices.Concat(c.config.Stages, c.config.Disabled) {
		_, brings := s.Outputs[cniOutput]
		disabled := slices.Contains(c.config.Disabled, s)
		if brings && s.Layer == "platform" && (!disabled || s.Delegate != nil) {
			return s
		}
	}
	return nil
}

// manifestBringsCNI reports whether a manifest that Talos applies may bring a network plugin: it is a
// DaemonSet, a Job installs its chart, or castle does not read it.
func manifestBringsCNI[M interface{ Contents() string }](inline []M, urls []string) bool {
	return len(urls) > 0 || slices.ContainsFunc(inline, func(m M) bool {
		return strings.Contains(m.Contents(), "DaemonSet") || strings.Contains(m.Contents(), "kind: Job")
	})
}

// ciliumBugs are versions of Cilium that do not work on Talos in place of kube-proxy. The fourth column is
// what was seen. A fixed version is not known.
var ciliumBugs = []struct{ from, before, issue, seen string }{
	{"1.19.0", "1.20.0", "46010", "On Talos 1.12, its agents cut off the network of the host"},
	{"1.20.1", "1.21.0", "48420", "On Talos 1.13.9, Pods on the host's network, such as the API server, " +
		"may reach no Service after the first boot, and Cilium reports itself healthy"},
}

// checkCiliumVersion warns of versions with known bugs.
func checkCiliumVersion(c *cluster, report reporter) {
	for _, s := range c.config.Stages {
		chart := s.Written("cilium_chart_version")
		own, err := version.NewVersion(tfeval.Text(chart.Value))
		if err != nil || s.Source != ciliumStage {
			continue
		}
		for _, bug := range ciliumBugs {
			affected := version.MustConstraints(version.NewConstraint(">= " + bug.from + ", < " + bug.before))
			if affected.Check(own) {
				fallback, _ := s.Variables["cilium_chart_version"].Default()
				report("cilium-bug", chart.At(), fmt.Sprintf("Cilium %s: known not to work in place of "+
					"kube-proxy on Talos", own), "%s: https://github.com/cilium/cilium/issues/%s. A version "+
					"without the bug is not known from %s on. Choose %s.", bug.seen, bug.issue,
					bug.from, tfeval.Text(fallback))
			}
		}
	}
}
