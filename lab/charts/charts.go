// Package charts holds stand-ins for the charts that the stages install, and serves them as the
// Helm repositories that the stages name.
//
// A stand-in has the real one's names: namespaces, Services and their ports, labels,
// CustomResourceDefinitions, webhook configurations, workloads. It has neither its images nor its
// code: Pods run no containers, and lab/internal/operators does the work of the operators. Its
// values are those that the stages set. Its Pods take as long to become ready as the real images
// and processes, divided by the lab's speed.
//
// To use the package, create one Repositories, resolve every name in Hosts to the lab, and serve
// Handler(host) there over TLS. Paths are those of the real repositories (an OCI registry has an index here,
// too, and each repository is a registry, too), so https://fluxcd-community.github.io/helm-charts works
// unchanged.
package charts

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed all:shared all:metallb all:longhorn all:external-secrets
//go:embed all:flux2 all:traefik all:cert-manager all:pgo all:cilium all:csi-driver-nfs
//go:embed all:hcloud-cloud-controller-manager all:hcloud-csi
var sources embed.FS

// place is where charts are served.
type place struct{ host, folder string }

// home is the place of a chart.
type home struct {
	at    place
	chart string
}

func homes() []home {
	return []home{
		{place{"charts.external-secrets.io", "/"}, "external-secrets"},
		{place{"charts.hetzner.cloud", "/"}, "hcloud-cloud-controller-manager"},
		{place{"charts.hetzner.cloud", "/"}, "hcloud-csi"},
		{place{"charts.jetstack.io", "/"}, "cert-manager"},
		{place{"charts.longhorn.io", "/"}, "longhorn"},
		{place{"fluxcd-community.github.io", "/helm-charts"}, "flux2"},
		{place{"helm.cilium.io", "/"}, "cilium"},
		{place{"metallb.github.io", "/metallb"}, "metallb"},
		{place{"raw.githubusercontent.com", "/kubernetes-csi/csi-driver-nfs/master/charts"},
			"csi-driver-nfs"},
		{place{"registry.developers.crunchydata.com", "/crunchydata"}, "pgo"},
		{place{"traefik.github.io", "/charts"}, "traefik"},
	}
}

// Options configure the contents of the repositories.
type Options struct {
	// Speed divides the time that Pods take to become ready; 1 is the time that they take outside.
	Speed float64
	// Versions are offered besides the ones that the stages pin, by chart. They differ in nothing but
	// the number.
	Versions map[string][]string
	// Definitions are the real CustomResourceDefinitions of a chart, in place of the stand-in's of these
	// names.
	Definitions map[string][]byte
	// LateCRDs has MetalLB's CRDs in a ConfigMap, for the operators to make them some time later.
	LateCRDs bool
	// Pulled are charts of the user's, each in place of the stand-in of its name and version.
	Pulled []Pulled
	// Elsewhere are the URLs of further repositories, and of charts in registries, which have the user's.
	Elsewhere []string
	// SpeakerNodes is the label of the nodes that metallb-speaker selects; empty for all nodes.
	SpeakerNodes string
}

// Repositories are the packaged charts and their indexes, in memory.
type Repositories struct {
	files map[string]map[string][]byte // host, path
}

// New packages every chart.
func New(o Options) (*Repositories, error) {
	if o.Speed <= 0 {
		return nil, fmt.Errorf("charts: speed %v: must be above 0", o.Speed)
	}
	r := &Repositories{files: map[string]map[string][]byte{}}
	places := map[place][]Pulled{}
	for _, h := range homes() {
		tree, err := fs.Sub(sources, h.chart)
		if err != nil {
			return nil, err
		}
		manifest, err := fs.ReadFile(tree, "Chart.yaml")
		if err != nil {
			return nil, err
		}
		real := named(o.Pulled, h.chart)
		versions := append(o.Versions[h.chart], pinned(manifest))
		slices.Sort(versions)
		for _, version := range slices.Compact(versions) {
			if Has(real, h.chart, version) {
				continue
			}
			archive, err := pack(h.chart, version, o, tree)
			if err != nil {
				return nil, fmt.Errorf("chart %s: %w", h.chart, err)
			}
			real = append(real, Pulled{h.chart, version, archive})
		}
		places[h.at] = append(places[h.at], real...)
	}
	for _, url := range o.Elsewhere {
		at, all := o.at(url)
		places[at] = append(places[at], all...)
	}
	for at, all := range places {
		r.publish(at, all)
	}
	return r, nil
}

// values returns the values that pack appends to every chart's own.
func (o Options) values() string {
	return fmt.Sprintf("lab:\n  speed: %g\n  lateCRDs: %t\n  speakerNodes: %q\n", o.Speed, o.LateCRDs,
		o.SpeakerNodes)
}

// Hosts are the names under which the repositories of the stages are known.
func Hosts() []string {
	hosts := map[string]bool{}
	for _, h := range homes() {
		hosts[h.at.host] = true
	}
	return slices.Sorted(maps.Keys(hosts))
}

// Serves reports whether there is a file.
func (r *Repositories) Serves(host, path string) bool { return r.files[host][path] != nil }

// Handler serves the repositories of one host, at their real paths.
func (r *Repositories) Handler(host string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		content, ok := r.files[host][request.URL.Path]
		if !ok {
			http.NotFound(w, request)
			return
		}
		if strings.Contains(request.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", manifestType)
		}
		http.ServeContent(w, request, path.Base(request.URL.Path), built(), bytes.NewReader(content))
	})
}

// built is the time of every packaged file: the same sources make the same archive.
func built() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// pinned reads the version of a Chart.yaml.
func pinned(manifest []byte) string {
	if found := versionLine.FindSubmatch(manifest); found != nil {
		return string(found[1])
	}
	return ""
}

var versionLine = regexp.MustCompile(`(?m)^version: (\S+)$`)
