package gates_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// mapper finds the resource of a kind. It resets its cache on a miss, because a test may have
// created the kind a moment ago.
type mapper struct {
	*restmapper.DeferredDiscoveryRESTMapper
}

func newMapper(d discovery.DiscoveryInterface) *mapper {
	return &mapper{restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}
}

func (m *mapper) find(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	found, err := m.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		m.Reset()
		return m.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return found, err
}

// at is where an object lives.
func (p *plane) at(t testing.TB, o *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	found, err := p.mapper.find(o.GroupVersionKind())
	check(t, err)
	if found.Scope.Name() == meta.RESTScopeNameRoot {
		return p.dynamic.Resource(found.Resource)
	}
	return p.dynamic.Resource(found.Resource).Namespace(o.GetNamespace())
}

// namespace makes one for a test, named after it, and removes it afterwards.
func (p *plane) namespace(t testing.TB) string {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	o.SetGenerateName("gates-")
	made, err := p.at(t, o).Create(t.Context(), o, metav1.CreateOptions{})
	check(t, err)
	p.removed(t, made)
	return made.GetName()
}

// create makes the manifest's objects, with NAMESPACE in it replaced, and
// removes them when the test ends. A status is written like a controller's.
func (p *plane) create(t testing.TB, namespace, manifest string) {
	t.Helper()
	for _, o := range objects(t, namespace, manifest) {
		_, err := p.at(t, o).Create(t.Context(), o, metav1.CreateOptions{})
		check(t, err)
		p.removed(t, o)
		if o.Object["status"] != nil {
			p.merge(t, o, "status")
		}
	}
}

// change merges the manifest into objects that exist, as their owner would.
func (p *plane) change(t testing.TB, namespace, manifest string) {
	t.Helper()
	for _, o := range objects(t, namespace, manifest) {
		p.merge(t, o)
	}
}

// report merges the manifest's status into that of objects that exist, as
// their controller would.
func (p *plane) report(t testing.TB, namespace, manifest string) {
	t.Helper()
	for _, o := range objects(t, namespace, manifest) {
		p.merge(t, o, "status")
	}
}

func (p *plane) merge(t testing.TB, o *unstructured.Unstructured, subresource ...string) {
	t.Helper()
	patch, err := json.Marshal(o)
	check(t, err)
	_, err = p.at(t, o).Patch(t.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{},
		subresource...)
	check(t, err)
}

// remove deletes the manifest's objects now.
func (p *plane) remove(t testing.TB, namespace, manifest string) {
	t.Helper()
	for _, o := range objects(t, namespace, manifest) {
		check(t, p.at(t, o).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}))
	}
}

// removed deletes an object when the test ends. A definition is awaited,
// because another test may want the same one.
func (p *plane) removed(t testing.TB, o *unstructured.Unstructured) {
	t.Helper()
	at := p.at(t, o)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := at.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		if o.GetKind() == "CustomResourceDefinition" {
			check(t,
				gate.Wait(ctx, gone(at, o.GetName()),
					gate.Policy{Timeout: time.Minute, First: 100 * time.Millisecond}, gate.Listener{}))
		}
	})
}

// gone opens when a definition is. The API's own finalizer can miss the moment
// when it could let go, and looks again after minutes; any change wakes it.
func gone(at dynamic.ResourceInterface, name string) gate.Gate {
	attempts := 0
	return gate.Gate{Name: "gone." + name, Check: func(ctx context.Context) error {
		attempts++
		change := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.org/attempts":"%d"}}}`, attempts)
		_, err := at.Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("is still there"), err)
	}}
}

func objects(t testing.TB, namespace, manifest string) []*unstructured.Unstructured {
	t.Helper()
	text := strings.ReplaceAll(manifest, "NAMESPACE", namespace)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(text), len(text))
	for all := []*unstructured.Unstructured(nil); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all
		}
		check(t, err)
		all = append(all, o)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node registers a node whose kubelet runs, and removes it afterwards.
func (p *plane) node(t testing.TB, name string) {
	t.Helper()
	check(t, kubernetes.Nodes{Client: p.cluster.Client}.Run(t.Context(),
		kubernetes.Node{Name: name, Addresses: []string{"192.0.2.10"},
			OS: "Talos (v1.13.0)", Kubelet: "v1.36.0", CPUs: 4, MemoryBytes: 8 << 30}))
	t.Cleanup(func() {
		check(t, p.cluster.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name,
			metav1.DeleteOptions{}))
	})
}
