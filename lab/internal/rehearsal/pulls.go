package rehearsal

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/lab/charts"
)

// pulls are the charts that Flux's repository installs and --charts has not.
type pulls struct {
	pulled []charts.Pulled
	// places are where a chart is named, by the command that brings it.
	places map[string][]gitops.Place
}

func (p *pulls) String() string {
	text := fmt.Sprintf("%d charts are not at hand, and their releases will fail. --charts DIR serves what "+
		"these commands bring:", len(p.places))
	for _, command := range slices.Sorted(maps.Keys(p.places)) {
		at := p.places[command]
		text += "\n  " + command + "  # " + inShell(at[0].String())
		if len(at) > 1 {
			text += fmt.Sprintf(" and %d more", len(at)-1)
		}
	}
	return text
}

// add adds the charts of a source, and reports whether it is one of charts.
func (p *pulls) add(source gitops.Object, all []*gitops.Kustomization) bool {
	url := text(source, "url")
	switch source.GetKind() {
	case "OCIRepository":
		if !strings.Contains(text(source, "layerSelector", "mediaType"), "helm.chart") {
			return false
		}
		version := cmp.Or(text(source, "ref", "semver"), text(source, "ref", "tag"))
		p.need(source.At, path.Base(url), version, inShell(url))
		return true
	case "HelmRepository":
		return p.released(source, url, all) || len(p.pulled) > 0 // it then has these, or needs none
	}
	return false
}

// released adds the charts that releases install from a HelmRepository, and reports whether there are any.
func (p *pulls) released(source gitops.Object, url string, all []*gitops.Kustomization) (some bool) {
	for _, k := range all {
		for _, o := range k.Objects {
			of := func(field string) string { return text(o, "chart", "spec", "sourceRef", field) }
			if o.GetKind() != "HelmRelease" || of("kind") != source.GetKind() ||
				of("name") != source.GetName() ||
				cmp.Or(of("namespace"), o.GetNamespace()) != source.GetNamespace() {
				continue
			}
			some = true
			chart := text(o, "chart", "spec", "chart")
			from := inShell(chart) + " --repo " + inShell(url)
			if strings.HasPrefix(url, "oci://") {
				from = inShell(url + "/" + chart)
			}
			p.need(o.At, chart, text(o, "chart", "spec", "version"), from)
		}
	}
	return some
}

// need adds a chart unless it was pulled. from are the words for helm pull that say where it is.
func (p *pulls) need(at gitops.Place, chart, version, from string) {
	if charts.Has(p.pulled, chart, version) {
		return
	}
	command := "helm pull -d DIR " + from
	if version != "" {
		command += " --version " + inShell(version)
	}
	p.places[command] = append(p.places[command], at)
}

// plain is a word that a shell leaves as it is.
var plain = regexp.MustCompile(`^[\w./:@%+,=][\w./:@%+,=-]*$`)

// inShell is a word for a shell, and for a terminal. It is no flag.
func inShell(word string) string {
	if plain.MatchString(word) {
		return word
	}
	if strings.HasPrefix(word, "-") {
		word = "./" + word
	}
	return "'" + strings.ReplaceAll(strings.Trim(fmt.Sprintf("%q", word), `"`), "'", "") + "'"
}
