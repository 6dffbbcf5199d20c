package check

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

func kubernetesUnsupported(c *cluster, report reporter) {
	release, kubernetes := tfeval.Text(c.variable("talos_version").Value), tfeval.Text(c.variable("kubernetes_version").Value)
	support, known := talos.SupportOf(release)
	if known && kubernetes != "" && !talos.Suits(release, kubernetes) {
		report(c.at("kubernetes_version"), fmt.Sprintf("kubernetes_version: %s does not go with Talos %s", kubernetes, release),
			"Talos %s (%s) runs Kubernetes %s to %s. Change one of the versions.", talos.Minor(release), where(c.at("talos_version")), support.From, support.To)
	}
}

func talosUnknown(c *cluster, report reporter) {
	release := tfeval.Text(c.variable("talos_version").Value)
	if _, known := talos.SupportOf(release); release == "" || known {
		return
	}
	if _, err := version.NewVersion(release); err != nil {
		return // a validation of the module says so
	}
	report(c.at("talos_version"), fmt.Sprintf("talos_version: castle does not know %s", release),
		"It knows Talos up to %s, judges the machine configuration as that release would, and cannot say which Kubernetes goes with yours.", talos.Newest())
}

func talosTooOld(c *cluster, report reporter) {
	if late, since := c.tooNew(); len(late) > 0 {
		report(c.at("talos_version"), fmt.Sprintf("talos_version: %s is too old for the stage", tfeval.Text(c.variable("talos_version").Value)),
			"The machine configuration has documents that it does not know: %s. Take %s or later.", strings.Join(names(late), ", "), since)
	}
}

// tooNew returns the kinds of documents that the cluster's Talos does not know
// yet, and the release that knows them all.
func (c *cluster) tooNew() (late map[string]bool, newest string) {
	own, err := version.NewVersion(talos.Minor(tfeval.Text(c.variable("talos_version").Value)))
	if err != nil {
		return nil, ""
	}
	late = map[string]bool{}
	for _, r := range c.rendered {
		if r.config == nil {
			continue
		}
		for _, kind := range r.config.Kinds() {
			since, err := version.NewVersion(talos.KindSince(kind))
			if err == nil && own.LessThan(since) {
				late[kind] = true
				newest = latest(newest, since.Original())
			}
		}
	}
	return late, newest
}

func latest(a, b string) string {
	x, err := version.NewVersion(a)
	if err != nil || x.LessThan(version.Must(version.NewVersion(b))) {
		return b
	}
	return a
}

// chartOld compares with the module's default: the version whose source the
// gates were written from, as stages/README.md says.
func chartOld(c *cluster, report reporter) {
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
			report(written.At(), fmt.Sprintf("%s: %s is older than the gates", name, own),
				"The gates of %s were written for %s (%s) and may ask for what %s does not have. Take %s or later, or set the gates' arguments anew in stage %q of cluster.hcl.",
				s.Source, known, where(s.Variables[name].Declared()), own, known, s.Name)
		}
	}
}
