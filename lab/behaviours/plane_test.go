// Package behaviours_test holds the lab's doubles against the real controllers: the same repository, the
// same API server, the same expectations. A double that differs is named in the table of differences with a
// reason; a difference that is not in the table fails, and so does one that is in it and is gone.
package behaviours_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/lab/charts"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes/kubernetestest"
)

// plane is a control plane with the charts of Flux and MetalLB in it.
type plane struct {
	cluster *kubernetes.Cluster
	objects dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	dir     string
	until   time.Time // when all behaviours are to be seen
}

// begin starts a control plane; it lasts as long as the process, which can hold one.
func begin(t *testing.T) *plane {
	t.Helper()
	if !testing.Verbose() {
		klog.SetLogger(logr.Discard())
	}
	lo, err := netlink.LinkByName("lo")
	check(t, err)
	check(t, netlink.LinkSetUp(lo))
	dir, err := os.MkdirTemp("", "lab-flux-") // a castle would tidy up castle-…
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c, err := kubernetestest.Config(filepath.Join(dir, "kubernetes"))
	check(t, err)
	check(t, os.Mkdir(c.Dir, 0o700))
	running, err := kubernetes.Start(context.Background(), c)
	check(t, err)
	objects, err := dynamic.NewForConfig(running.REST)
	check(t, err)
	kinds := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(running.Client.Discovery()))
	p := &plane{cluster: running, objects: objects, dir: c.Dir, mapper: kinds}
	check(t, kubernetes.Nodes{Client: running.Client}.Run(t.Context(),
		kubernetes.Node{Name: "worker", Addresses: []string{"127.0.0.1"}, CPUs: 4, MemoryBytes: 8 << 30}))
	return p
}

// install applies a chart's templates, with the real definitions if there are any.
func (p *plane) install(t *testing.T, definitions map[string][]byte, host, path string, templates ...string) {
	t.Helper()
	r, err := charts.New(charts.Options{Speed: 1000, Definitions: definitions})
	check(t, err)
	c, err := loader.LoadArchive(strings.NewReader(fetched(t, r.Handler(host), path)))
	check(t, err)
	values, err := chartutil.ToRenderValues(c, nil,
		chartutil.ReleaseOptions{Name: c.Name(), Namespace: namespace, IsInstall: true}, nil)
	check(t, err)
	rendered, err := engine.Render(c, values)
	check(t, err)
	p.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: { name: "+namespace+" }\n")
	for _, name := range templates {
		p.apply(t, rendered[c.Name()+"/templates/"+name+".yaml"])
	}
}

const namespace = "flux-system"

// apply creates what a text has, once its kinds are served.
func (p *plane) apply(t *testing.T, text string) {
	t.Helper()
	for documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		err := documents.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		check(t, err)
		if len(o.Object) != 0 {
			eventually(t, 30*time.Second, func() error { return p.attempt(t, o) })
		}
	}
}

// attempt applies an object.
func (p *plane) attempt(t *testing.T, o *unstructured.Unstructured) error {
	if o.GetNamespace() == "" {
		o.SetNamespace(namespace)
	}
	api, err := p.api(o.GroupVersionKind(), o.GetNamespace())
	if err == nil {
		_, err = api.Apply(t.Context(), o.GetName(), o,
			metav1.ApplyOptions{FieldManager: "test", Force: true})
	}
	return err
}

func (p *plane) api(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	m, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		p.mapper.Reset()
		m, err = p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return p.objects.Resource(m.Resource), nil
	}
	return p.objects.Resource(m.Resource).Namespace(namespace), nil
}

// get is an object, such as "kustomize.toolkit.fluxcd.io/v1 Kustomization apps"; nil if it is not there.
func (p *plane) get(t *testing.T, apiVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	api, err := p.api(schema.FromAPIVersionAndKind(apiVersion, kind), namespace)
	check(t, err)
	o, err := api.Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	check(t, err)
	return o
}
