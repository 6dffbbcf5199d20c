package flux

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	helmstorage "helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// access gives Helm access to the cluster, for one namespace.
type access struct {
	config    *rest.Config
	namespace string
}

// ToRESTConfig is part of Helm's interface.
func (a access) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(a.config), nil }

// ToRawKubeConfigLoader is part of Helm's interface, which reads the namespace from it.
func (a access) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{}
	overrides.Context.Namespace = a.namespace
	return clientcmd.NewDefaultClientConfig(*api.NewConfig(), overrides)
}

// ToDiscoveryClient is part of Helm's interface.
func (a access) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfig(a.config)
	if err != nil {
		return nil, err
	}
	return memory.NewMemCacheClient(client), nil
}

// ToRESTMapper is part of Helm's interface.
func (a access) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := a.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(client), nil
}

func (h *helm) actions(namespace string) (*action.Configuration, error) {
	c := new(action.Configuration)
	return c, c.Init(access{h.config, namespace}, namespace, "secret", func(string, ...any) {})
}

// description returns the description of a release, which identifies the change that made it.
func description(step string) string { return "by Flux " + step[:16] }

func chartName(w *want) string {
	name := strings.TrimSuffix(path.Base(w.url), ".tgz")
	return strings.TrimSuffix(name, "-"+w.version) + "@" + w.version
}

// run installs a release with Helm, or upgrades the existing one. A failed first install blocks the
// next, so run removes it.
func (h *helm) run(ctx context.Context, to *action.Configuration, last *release.Release,
	w *want) (*release.Release, error) {
	archive, err := h.get(ctx, w.url)
	if err != nil {
		return nil, err
	}
	chart, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	if last != nil && last.Info.Status != release.StatusDeployed && last.Version == 1 {
		if err := h.uninstall(w.namespace, w.name); err != nil {
			return nil, err
		}
		last = nil
	}
	if last == nil {
		i := action.NewInstall(to)
		i.ReleaseName, i.Namespace, i.CreateNamespace, i.Description, i.Timeout = w.name, w.namespace,
			w.create, description(w.step), w.timeout
		i.PostRenderer = w.origin
		return i.RunWithContext(ctx, chart, w.values)
	}
	u := action.NewUpgrade(to)
	u.Namespace, u.Description, u.Timeout, u.MaxHistory = w.namespace, description(w.step), w.timeout, 5
	u.PostRenderer = w.origin
	return u.RunWithContext(ctx, w.name, chart, w.values)
}

// waiting returns the first object of a release that is not ready.
func (h *helm) waiting(ctx context.Context, r *release.Release) (string, error) {
	all, err := objects(strings.NewReader(r.Manifest))
	if err != nil {
		return "", err
	}
	for _, o := range all {
		if o.GetNamespace() == "" {
			o.SetNamespace(r.Namespace)
		}
	}
	return h.a.unhealthy(ctx, all)
}

// objects decodes a manifest.
func objects(manifest io.Reader) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(manifest, 4096); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(o.Object) > 0:
			all = append(all, o)
		}
	}
}

// origin is a HelmRelease, which its objects name in labels: flux trace follows them.
type origin struct{ namespace, name string }

// Run is part of Helm's interface of post-renderers.
func (g origin) Run(rendered *bytes.Buffer) (*bytes.Buffer, error) {
	all, err := objects(rendered)
	if err != nil {
		return nil, err
	}
	labelled := &bytes.Buffer{}
	for _, o := range all {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["helm.toolkit.fluxcd.io/name"] = g.name
		labels["helm.toolkit.fluxcd.io/namespace"] = g.namespace
		o.SetLabels(labels)
		text, err := sigsyaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		labelled.WriteString("---\n" + string(text))
	}
	return labelled, nil
}

func (h *helm) uninstall(namespace, name string) error {
	to, err := h.actions(namespace)
	if err != nil {
		return err
	}
	_, err = action.NewUninstall(to).Run(name)
	return cluster.Unless(err, func(err error) bool { return errors.Is(err, helmstorage.ErrReleaseNotFound) })
}
