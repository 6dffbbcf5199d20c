package check

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

func checkKubernetesVersion(c *cluster, report reporter) {
	release := tfeval.Text(c.variable("talos_version").Value)
	kubernetes := tfeval.Text(c.variable("kubernetes_version").Value)
	support, known := talos.SupportOf(release)
	if known && kubernetes != "" && !talos.Suits(release, kubernetes) {
		report("kubernetes-unsupported", c.at("kubernetes_version"),
			fmt.Sprintf("kubernetes_version: %s does not go with Talos %s", kubernetes, release),
			"Talos %s (%s) runs Kubernetes %s to %s. Change one of the versions.",
			talos.Minor(release), where(c.at("talos_version")), support.From, support.To)
	}
}

func checkTalosVersion(c *cluster, report reporter) {
	release := tfeval.Text(c.variable("talos_version").Value)
	if _, err := version.NewVersion(release); err != nil {
		return // a validation of the module reports it
	}
	if _, known := talos.SupportOf(release); !known {
		report("talos-unknown", c.at("talos_version"), "talos_version: castle does not know "+release,
			"It knows Talos up to %s, checks the machine configuration as that release would, and does "+
				"not know "+
				"which Kubernetes goes with yours.", talos.Newest())
	}
	if late, since := tooNew(c); len(late) > 0 {
		report("talos-too-old", c.at("talos_version"), "talos_version: "+release+" is too old for the stage",
			"The machine configuration has documents that it does not know: %s. Choose %s or later.",
			strings.Join(names(late), ", "), since)
	}
}

// tooNew returns the kinds of documents that the cluster's Talos does not know yet, and
// the release that knows them all.
func tooNew(c *cluster) (late map[string]bool, newest string) {
	own, err := version.NewVersion(talos.Minor(tfeval.Text(c.variable("talos_version").Value)))
	if err != nil {
		return nil, ""
	}
	late = map[string]bool{}
	var last *version.Version
	for _, r := range c.rendered {
		if r.config == nil {
			continue
		}
		for _, document := range r.config.Documents() {
			since, err := version.NewVersion(talos.KindSince(document.Kind()))
			if err != nil || !own.LessThan(since) {
				continue
			}
			late[document.Kind()] = true
			if last == nil || last.LessThan(since) {
				last, newest = since, since.Original()
			}
		}
	}
	return late, newest
}

// checkChartVersions compares with the module's default: the gates follow the source of that version, as
// stages/README.md states.
func checkChartVersions(c *cluster, report reporter) {
	for _, s := range c.config.Stages {
		for _, name := range names(s.Variables) {
			fallback, _ := s.Variables[name].Default()
			if !strings.HasSuffix(name, "_chart_version") {
				continue
			}
			written := s.Written(name)
			own, err := version.NewVersion(tfeval.Text(written.Value))
			known, otherErr := version.NewVersion(tfeval.Text(fallback))
			if err != nil || otherErr != nil || !own.LessThan(known) {
				continue
			}
			report("chart-old", written.At(), fmt.Sprintf("%s: %s is older than the gates", name, own),
				"The gates of %s were written for %s (%s) and may check objects that %s does not have. "+
					"Choose %s or later, or set the gates' arguments in stage %q of cluster.hcl.",
				s.Source, known, where(s.Variables[name].Declared()), own, known, s.Name)
		}
	}
}
