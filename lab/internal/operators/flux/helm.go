package flux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/repo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// helm is Flux's way of installing charts: the source-controller's part of it
// (HelmRepository, HelmChart) here, the helm-controller's in helm_release.go. Helm
// itself is real, and the repositories are those of the lab.
type helm struct {
	w       *cluster.View
	a       *Applier
	config  *rest.Config
	http    *http.Client
	indexes map[string]*repo.IndexFile // by the repository's UID and generation
	// failures are those of a step, until it succeeds or changes.
	failures map[string]failure
}

// NewHelm returns the helm-controller.
func NewHelm(w *cluster.View, a *Applier, config *rest.Config, client *http.Client) *helm {
	return &helm{w: w, a: a, config: config, http: client, indexes: map[string]*repo.IndexFile{},
		failures: map[string]failure{}}
}

func (h *helm) Close() {}

func helmRepositories() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1",
		Resource: "helmrepositories"}
}

func helmCharts() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1",
		Resource: "helmcharts"}
}

func helmReleases() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2",
		Resource: "helmreleases"}
}

func (h *helm) Look(ctx context.Context) error {
	source, err := h.w.Deployment(ctx, "source-controller")
	if err != nil {
		return err
	}
	controller, err := h.w.Deployment(ctx, "helm-controller")
	if err != nil {
		return err
	}
	var errs []error
	if source != nil {
		errs = append(errs, h.each(ctx, helmRepositories(), h.index), h.each(ctx, helmCharts(), h.pull))
	}
	if controller != nil {
		errs = append(errs, h.each(ctx, helmReleases(), h.reconcile))
	}
	return errors.Join(errs...)
}

func (h *helm) each(ctx context.Context, in schema.GroupVersionResource,
	do func(context.Context, *unstructured.Unstructured) error) error {
	all, err := h.w.List(ctx, in, "")
	errs := []error{err}
	for _, object := range all {
		//nolint:errcheck // the API server has validated it
		if suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "suspend"); !suspended {
			errs = append(errs, cluster.About(cluster.Titled(&object), do(ctx, &object)))
		}
	}
	return errors.Join(errs...)
}

// index fetches a repository's index. One of type oci is only an address, and has
// no status.
func (h *helm) index(ctx context.Context, r *unstructured.Unstructured) error {
	if r.GetDeletionTimestamp() != nil {
		return nil
	}
	why := h.load(ctx, r)
	if cluster.Text(r.Object, "spec", "type") == "oci" {
		return errors.Join(why, h.w.SetStatus(ctx, helmRepositories(), r, func(status map[string]any) {
			clear(status)
		}))
	}
	return report(ctx, h.w, helmRepositories(), r, func(status map[string]any) {
		handled(status, r)
		if why != nil {
			message := "failed to fetch Helm repository index: failed to cache index to temporary file: " +
				why.Error()
			h.w.SetCondition(status, "FetchFailed", "True", "Failed", message, r.GetGeneration())
			h.w.SetCondition(status, "Ready", "False", "Failed", message, r.GetGeneration())
			return
		}
		cluster.DropCondition(status, "FetchFailed")
		h.stored(status, r, "Succeeded", "stored artifact: revision '"+digestOf(r)+"'", digestOf(r))
	})
}

// stored sets the status of a source with an artifact.
func (h *helm) stored(status map[string]any, source *unstructured.Unstructured, reason, message,
	revision string) {
	h.w.SetCondition(status, "Ready", "True", reason, message, source.GetGeneration())
	h.w.SetCondition(status, "ArtifactInStorage", "True", reason, message, source.GetGeneration())
	status["observedGeneration"] = source.GetGeneration()
	if cluster.Text(status, "artifact", "revision") == revision {
		return
	}
	path := strings.ToLower(source.GetKind()) + "/" + source.GetNamespace() + "/" + source.GetName() +
		"/artifact"
	status["artifact"] = map[string]any{
		"revision": revision, "path": path, "lastUpdateTime": h.w.Now().UTC().Format(time.RFC3339),
		"url":    "http://source-controller.flux-system.svc.cluster.local./" + path,
		"digest": digestOf(source),
	}
}

// digestOf returns a digest in place of that of an artifact's content.
func digestOf(source *unstructured.Unstructured) string {
	return "sha256:" + digest(cluster.Text(source.Object, "spec", "url")+" "+
		cluster.Text(source.Object, "spec", "chart"))
}

// addressOf is where the lab has a repository's index and charts: a registry's, too.
func addressOf(r *unstructured.Unstructured) string {
	address := strings.TrimSuffix(cluster.Text(r.Object, "spec", "url"), "/") + "/"
	if rest, oci := strings.CutPrefix(address, "oci://"); oci {
		return "https://" + rest
	}
	return address
}

func indexKey(r *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %d", r.GetUID(), r.GetGeneration())
}

func (h *helm) load(ctx context.Context, r *unstructured.Unstructured) error {
	if h.indexes[indexKey(r)] != nil {
		return nil
	}
	data, err := h.get(ctx, addressOf(r)+"index.yaml")
	if err != nil {
		return err
	}
	index := &repo.IndexFile{}
	if err := yaml.UnmarshalStrict(data, index); err != nil {
		return err
	}
	index.SortEntries()
	h.indexes[indexKey(r)] = index
	return nil
}

func (h *helm) get(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := h.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("failed to fetch %s : %s", address, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

// version finds the version of a HelmChart in its repository's index.
func (h *helm) version(ctx context.Context,
	c *unstructured.Unstructured) (*repo.ChartVersion, string, error) {
	if kind := cluster.Text(c.Object, "spec", "sourceRef", "kind"); kind != "HelmRepository" {
		return nil, "", fmt.Errorf("the lab has no charts from a %s", kind)
	}
	r, err := h.w.Untyped.Resource(helmRepositories()).Namespace(c.GetNamespace()).Get(ctx,
		cluster.Text(c.Object, "spec", "sourceRef", "name"), metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("failed to get source: %w", err)
	}
	index := h.indexes[indexKey(r)]
	if index == nil {
		return nil, "", errors.New("no artifact available for HelmRepository source '" + r.GetName() + "'")
	}
	name, version := cluster.Text(c.Object, "spec", "chart"), cluster.Text(c.Object, "spec", "version")
	found, err := index.Get(name, version)
	if err != nil {
		return nil, "",
			fmt.Errorf("invalid chart reference: failed to get chart version for remote reference: no "+
				"'%s' chart with version matching '%s' found", name, version)
	}
	base, err := url.Parse(addressOf(r))
	if err != nil {
		return nil, "", err
	}
	at, err := base.Parse(found.URLs[0])
	if err != nil {
		return nil, "", err
	}
	return found, at.String(), nil
}

// pull returns an error if a HelmChart cannot be downloaded.
func (h *helm) pull(ctx context.Context, c *unstructured.Unstructured) error {
	if c.GetDeletionTimestamp() != nil {
		return nil
	}
	found, _, why := h.version(ctx, c)
	return report(ctx, h.w, helmCharts(), c, func(status map[string]any) {
		if why != nil {
			h.w.SetCondition(status, "Ready", "False", "InvalidChartReference", why.Error(),
				c.GetGeneration())
			return
		}
		h.stored(status, c, "ChartPullSucceeded", fmt.Sprintf("pulled '%s' chart with version '%s'",
			found.Name, found.Version), found.Version)
	})
}

// chart makes the HelmChart of a release, and returns it as it is now.
func (h *helm) chart(ctx context.Context, r *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	wanted, _, err := unstructured.NestedMap(r.Object, "spec", "chart", "spec")
	if err != nil || wanted == nil {
		return nil, errors.Join(err, errors.New("the lab installs charts that spec.chart names"))
	}
	namespace := cluster.Text(wanted, "sourceRef", "namespace")
	if namespace == "" {
		namespace = r.GetNamespace()
	}
	unstructured.RemoveNestedField(wanted, "sourceRef", "namespace")
	if cluster.Text(wanted, "version") == "" {
		wanted["version"] = "*"
	}
	wanted["interval"] = cluster.Text(r.Object, "spec", "interval")
	c := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
		"metadata": map[string]any{"name": r.GetNamespace() + "-" + r.GetName(), "namespace": namespace},
		"spec":     wanted,
	}}
	if err := h.a.apply(ctx, c, "helm-controller"); err != nil {
		return nil, err
	}
	return h.w.Untyped.Resource(helmCharts()).Namespace(namespace).Get(ctx, c.GetName(), metav1.GetOptions{})
}

// dropChart removes the HelmChart of a release that is gone.
func (h *helm) dropChart(ctx context.Context, r *unstructured.Unstructured) error {
	namespace, name, made := strings.Cut(cluster.Text(r.Object, "status", "helmChart"), "/")
	if !made {
		return nil
	}
	return cluster.Unless(h.w.Untyped.Resource(helmCharts()).Namespace(namespace).Delete(ctx, name,
		metav1.DeleteOptions{}), apierrors.IsNotFound)
}
