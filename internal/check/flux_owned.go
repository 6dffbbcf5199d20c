package check

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// ownedTwice finds the duel: what Flux applies and a stage makes as well.
func ownedTwice(c *cluster, report reporter) {
	repository, _ := c.flux()
	if repository == nil {
		return
	}
	for _, k := range repository.Kustomizations {
		for _, o := range k.Objects {
			if k.Suspend {
				continue
			}
			for _, m := range c.stageObjects() {
				if what := c.same(m, o); what != "" {
					report(c.inFlux(o.Place), fmt.Sprintf("%s: stage %s %s, too", named(o), m.Stage.Name, what),
						"Flux applies it with Kustomization %s, Terraform has it at %s, and each undoes at every interval or create what the other one has changed. "+
							"Delete it here, or leave it to Flux: %senabled = false in stage %s, %s.",
						k.Key, where(m.At), c.unasked(m), m.Stage.Name, where(m.Stage.At()))
				}
			}
		}
	}
}

// unasked says how a stage would make all but m, or but little more: without the
// optional variable that asks for it. "" if there is none.
func (c *cluster) unasked(m tfeval.Object) string {
	own := slices.DeleteFunc(slices.Clone(c.stageObjects()), func(o tfeval.Object) bool { return o.Stage != m.Stage })
	for _, variable := range names(m.Stage.Variables) {
		if fallback, has := m.Stage.Variables[variable].Default(); !has || !fallback.IsNull() {
			continue
		}
		rest := c.without(m.Stage, variable)
		if len(rest) >= len(own) || slices.ContainsFunc(rest, m.Is) {
			continue // it asks for something else, or names it
		}
		var others []string
		for _, o := range own {
			if !o.Is(m) && !slices.ContainsFunc(rest, o.Is) {
				others = append(others, o.String())
			}
		}
		way := fmt.Sprintf("no %s, %s", variable, where(m.Stage.Written(variable).At()))
		if len(others) > 0 {
			way += fmt.Sprintf(" (which leaves %s to Flux, too)", strings.Join(others, " and "))
		}
		return way + ", or "
	}
	return ""
}

// leftToNobody finds a disabled stage whose gates wait for Flux, which does not
// bring what they ask for. What comes from other sources of Flux's is not known.
func leftToNobody(c *cluster, report reporter) {
	repository, problems := c.flux()
	if repository == nil || len(problems) > 0 ||
		slices.ContainsFunc(repository.Kustomizations, func(k *gitops.Kustomization) bool { return k.Elsewhere != "" }) {
		return
	}
	for _, s := range c.config.Disabled {
		if s.AskedBy == nil || s.AskedBy.Layer != "gitops" {
			continue
		}
		for _, b := range tfeval.Read(s, nil).Known("resource", "helm_release") {
			if chart := b.Text("chart"); chart != "" && !strings.HasPrefix(chart, "./") && !c.brings(chart) {
				report(s.At(), "stage "+s.Name+": left to Flux, which does not bring it",
					"Stage %s asks the gates of this one, and nothing that Flux applies from git_path on (%s) installs the chart %s: they would not open. "+
						"Add a HelmRelease to Flux's repository, or enable the stage.", s.AskedBy.Name, where(c.at("git_path")), chart)
			}
		}
	}
}

// brings reports whether Flux installs a chart.
func (c *cluster) brings(chart string) bool {
	return slices.ContainsFunc(c.repository.Kustomizations, func(k *gitops.Kustomization) bool {
		return !k.Suspend && slices.ContainsFunc(k.Objects, func(o gitops.Object) bool { return isRelease(o) && c.chartOf(o) == chart })
	})
}

// same says what m does that o does as well; "" if they have nothing in common.
func (c *cluster) same(m tfeval.Object, o gitops.Object) string {
	group := o.GroupVersionKind().Group
	if m.Kind != tfeval.Release {
		switch {
		case m.Is(tfeval.Object{Group: group, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}):
			return "makes it"
		case group == "external-secrets.io" && o.GetKind() == "ExternalSecret" && field(o, "spec", "target", "creationPolicy") != "Merge" &&
			m.Is(tfeval.Object{Kind: "Secret", Namespace: o.GetNamespace(), Name: cmp.Or(field(o, "spec", "target", "name"), o.GetName())}):
			return "makes its Secret " + m.Name
		}
		return ""
	}
	if !isRelease(o) {
		return ""
	}
	name, namespace := installs(o)
	if m.Name == name && m.Namespace == namespace {
		return "installs this release"
	}
	if chart := c.chartOf(o); chart == m.Chart && len(operators()[chart]) > 0 {
		return "installs the chart " + chart
	}
	return ""
}

func isRelease(o gitops.Object) bool {
	return o.GetKind() == "HelmRelease" && o.GroupVersionKind().Group == "helm.toolkit.fluxcd.io"
}

// installs is the release that Flux makes of a HelmRelease.
func installs(o gitops.Object) (name, namespace string) {
	target := field(o, "spec", "targetNamespace")
	name = o.GetName()
	if target != "" {
		name = target + "-" + name
	}
	return cmp.Or(field(o, "spec", "releaseName"), name), cmp.Or(target, o.GetNamespace())
}

// chartOf is the name of the chart that a HelmRelease installs.
func (c *cluster) chartOf(o gitops.Object) string {
	if chart := field(o, "spec", "chart", "spec", "chart"); chart != "" {
		return path.Base(chart)
	}
	kind, name, namespace := field(o, "spec", "chartRef", "kind"), field(o, "spec", "chartRef", "name"), cmp.Or(field(o, "spec", "chartRef", "namespace"), o.GetNamespace())
	for _, k := range c.repository.Kustomizations {
		for _, source := range k.Objects {
			if name != "" && source.GetKind() == kind && source.GetName() == name && source.GetNamespace() == namespace {
				return path.Base(cmp.Or(field(source, "spec", "url"), field(source, "spec", "chart")))
			}
		}
	}
	return ""
}

// field is a text of an object, "" if it has none there.
func field(o gitops.Object, fields ...string) string {
	text, _, _ := unstructured.NestedString(o.Object, fields...) //nolint:errcheck // another type is no text
	return text
}
