// Package outdated compares the versions that a cluster pins with those that their sources offer: the image
// factory for Talos, a mirror of registry.k8s.io for Kubernetes, the repositories of charts, and the origins
// of Terraform's providers. It sends requests to addresses that the configuration names, and to no other one.
// What no source has answered for is unknown, never current.
package outdated

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// The states of a pinned version.
const (
	Current  = "current"  // its source has no newer release
	Outdated = "outdated" // its source has one
	Missing  = "missing"  // its source has others, and not the one of a chart that is pinned
	Unknown  = "unknown"  // castle could not look
)

// Item is one pinned version.
type Item struct {
	Kind   string   `json:"kind"` // talos, kubernetes, chart or provider
	Name   string   `json:"name"`
	Pinned string   `json:"pinned"`
	Status string   `json:"status"`
	Path   []string `json:"path"`           // the releases to go through, one after the other
	Source string   `json:"source"`         // the address that castle asked; empty: there is none
	Note   string   `json:"note,omitempty"` // why castle could not look, or what the path waits for
	// At is the stage that installs a chart, in cluster.hcl.
	At hcl.Range `json:"-"`

	gradual bool                       // no minor release may be skipped
	read    func([]byte) []string      // the releases in the source's answer
	review  func(path []string) string // what hinders the path
}

// gradualCharts go up one minor release at a time, as their authors demand.
var gradualCharts = []string{"cilium", "longhorn"}

// timeout bounds one request.
const timeout = 20 * time.Second

// Run looks for newer releases of everything that a cluster pins.
func Run(ctx context.Context, o cluster.Options, transport http.RoundTripper) ([]*Item, error) {
	c, err := o.Load()
	if err != nil {
		return nil, err
	}
	items := append(releases(c), charts(c)...)
	more, err := locked(c, o)
	if err != nil {
		return nil, err
	}
	items = append(items, more...)
	query(ctx, items, transport)
	return items, context.Cause(ctx)
}

// Charts looks for the charts of clusters alone.
func Charts(ctx context.Context, transport http.RoundTripper, clusters ...*config.Cluster) (items []*Item) {
	items = xslices.FlatMap(clusters, charts)
	query(ctx, items, transport)
	return items
}

func query(ctx context.Context, items []*Item, transport http.RoundTripper) {
	client := &http.Client{Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answers := map[string]func() ([]byte, error){} // of each source one
	var all sync.WaitGroup
	for _, i := range items {
		i.Status, i.Path = Unknown, []string{}
		if i.Source == "" {
			continue
		}
		if answers[i.Source] == nil {
			answers[i.Source] = sync.OnceValues(func() ([]byte, error) { return get(ctx, client, i.Source) })
		}
		answer := answers[i.Source]
		all.Go(func() { i.look(answer) })
	}
	all.Wait()
}

// look reads the answer of an item's source.
func (i *Item) look(answer func() ([]byte, error)) {
	body, err := answer()
	if err != nil {
		i.Note = err.Error()
		return
	}
	i.compare(i.read(body))
}

// compare decides what the releases of the source mean.
func (i *Item) compare(offered []string) {
	pinned, err := version.NewVersion(i.Pinned)
	newest := map[string]*version.Version{} // by minor release
	known := 0
	found := i.Kind != "chart" || strings.Count(i.Pinned, ".") < 2 // 1.9 is any release of it
	for _, text := range offered {
		v, unread := version.NewVersion(text)
		found = found || err == nil && unread == nil && v.Equal(pinned)
		if unread != nil || v.Prerelease() != "" {
			continue
		}
		known++
		minor := fmt.Sprint(v.Segments()[:2])
		switch {
		case err != nil || !v.GreaterThan(pinned):
		case newest[minor] == nil || v.GreaterThan(newest[minor]):
			newest[minor] = v
		}
	}
	if err != nil || known == 0 {
		i.Note = cmp.Or(i.Note, "the source lists no release that can be compared")
		return
	}
	steps := slices.SortedFunc(maps.Values(newest), (*version.Version).Compare)
	if len(steps) > 1 && !i.gradual {
		steps = steps[len(steps)-1:]
	}
	i.Path = append(i.Path, xslices.Map(steps, (*version.Version).Original)...)
	i.Status = Current
	switch {
	case !found:
		i.Status, i.Note = Missing, "the repository does not have this version"
	case len(steps) > 0:
		i.Status = Outdated
	}
	if i.review != nil {
		i.Note = i.review(i.Path)
	}
}

// releases are those of Talos and Kubernetes.
func releases(c *config.Cluster) (items []*Item) {
	for _, s := range c.Stages {
		text := func(variable string) string { return tfeval.Text(s.Written(variable).Value) }
		release, kubernetes := text("talos_version"), text("kubernetes_version")
		if s.Source != "platform/talos" || release == "" {
			continue
		}
		review := func(path []string) string {
			from := release
			for _, to := range path {
				if err := talos.UpgradePath(from, to, kubernetes); err != nil {
					return err.Error()
				}
				from = to
			}
			return ""
		}
		items = append(items, &Item{Kind: "talos", Name: "talos", Pinned: release, gradual: true,
			Source: "https://" + text("talos_image_factory") + "/versions", read: list, review: review})
		_, newest := talos.SupportOf(release)
		k := &Item{Kind: "kubernetes", Name: "kubernetes", Pinned: kubernetes, gradual: true, read: tags}
		k.review = func(path []string) string {
			if len(path) > 0 && !talos.Suits(release, strings.TrimPrefix(path[len(path)-1], "v")) {
				return "Talos " + release + " runs " + newest + " at most; upgrade Talos first"
			}
			return ""
		}
		mirror := tfeval.Map(s.Written("registry_mirrors").Value)["registry.k8s.io"]
		for _, endpoint := range tfeval.Strings(tfeval.Attribute(mirror, "endpoints")) {
			if !tfeval.Attribute(mirror, "override_path").RawEquals(cty.True) {
				endpoint = strings.TrimSuffix(endpoint, "/") + "/v2"
			}
			k.Source = cmp.Or(k.Source, endpoint+"/kube-apiserver/tags/list?n=10000")
		}
		if k.Source == "" {
			k.Note = "no address in the configuration lists its releases: registry_mirrors has none for " +
				"registry.k8s.io. " + release + " runs " + newest + " at most"
		}
		items = append(items, k)
	}
	return items
}

// charts are those of the Helm releases that stages install from repositories.
func charts(c *config.Cluster) (items []*Item) {
	for _, s := range c.Stages {
		for _, b := range tfeval.Read(s, s.KnownInputs(nil, nil)).Instances("resource", "helm_release") {
			repository, chart := strings.TrimSuffix(b.Text("repository"), "/"), b.Text("chart")
			i := &Item{Kind: "chart", Name: cmp.Or(chart, b.Name), Pinned: b.Text("version"), At: s.At(),
				Source: repository + "/index.yaml", gradual: slices.Contains(gradualCharts, chart)}
			if written, err := b.Value("repository"); err == nil && written == cty.NilVal {
				continue // a chart of the stage's own
			} else if repository == "" || chart == "" {
				i.Source, i.Note = "", "stage "+s.Name+" names its repository by values that only a run knows"
			}
			i.read = func(body []byte) []string { return index(body, chart) }
			if path, oci := strings.CutPrefix(repository, "oci://"); oci {
				host, path, _ := strings.Cut(path, "/")
				i.Source, i.read = "https://"+host+"/v2/"+path+"/"+chart+"/tags/list?n=10000", tags
			}
			items = append(items, i)
		}
	}
	return items
}

// locked are the providers of all stages, with the versions in the lock file.
func locked(c *config.Cluster, o cluster.Options) (items []*Item, err error) {
	lock, err := providers.ReadFile(filepath.Join(c.Dir, providers.FileName), os.ReadFile)
	if err != nil {
		return nil, err
	}
	origins, err := terraform.ReadOrigins(o.Environ)
	if err != nil {
		return nil, err
	}
	constraints := map[string]string{}
	for _, s := range c.Stages {
		required, err := providers.Required(s.Module)
		if err != nil {
			return nil, err
		}
		for source, constraint := range required {
			constraints[source] = providers.Join(constraints[source], constraint)
		}
	}
	for source, constraint := range constraints {
		origin := origins.Of(source)
		i := &Item{Kind: "provider", Name: providers.Short(source), Pinned: lock[source].Version,
			Source: origin.URL, read: registry}
		if host, name, _ := strings.Cut(source, "/"); origin.Mirror != "" {
			i.read = mirrored
		} else if origin.OCI != "" {
			i.Source, i.read = origin.OCI, tags
		} else if origin.URL != "" { // the service discovery of the public registries leads there
			i.Source = "https://" + host + "/v1/providers/" + name + "/versions"
		}
		switch {
		case i.Pinned == "":
			i.Pinned, i.Source = constraint, ""
			i.Note = "no release is recorded; `castle providers lock " + o.Cluster + "` does it"
		case origin.Local != "":
			i.Note = "comes from the folder " + origin.Local + ", which castle does not search"
		case origin.URL == "":
			i.Note = "Terraform's own configuration names no source of it"
		}
		i.review = func(path []string) string {
			for _, to := range path {
				if ok, err := providers.Allows(constraint, to); !ok && err == nil {
					return "the stages require " + constraint
				}
			}
			return ""
		}
		items = append(items, i)
	}
	slices.SortFunc(items, func(a, b *Item) int { return strings.Compare(a.Name, b.Name) })
	return items, nil
}
