package flux

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	untypedfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

// kinds maps the kinds of the fake API to their resources.
type kinds struct{ *meta.DefaultRESTMapper }

func (kinds) Reset() {}

// serving returns an applier for the kinds of a test's repository.
func serving(s *clustertest.Stage) *Applier {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"},
		meta.RESTScopeNamespace)
	return &Applier{untyped: s.World.Untyped, mapper: kinds{m}}
}

// takesApply has the fake API take a server-side apply for an update: all that is
// applied here belongs to one.
func takesApply(s *clustertest.Stage) {
	fake := s.World.Untyped.(*untypedfake.FakeDynamicClient)
	fake.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		if p.GetPatchType() != types.ApplyPatchType {
			return false, nil, nil
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(p.GetPatch()); err != nil {
			return true, nil, err
		}
		have, err := fake.Tracker().Get(p.GetResource(), p.GetNamespace(), p.GetName())
		if err != nil {
			return true, o, fake.Tracker().Create(p.GetResource(), o, p.GetNamespace())
		}
		o.SetFinalizers(have.(*unstructured.Unstructured).GetFinalizers())
		o.Object["status"] = have.(*unstructured.Unstructured).Object["status"]
		return true, o, fake.Tracker().Update(p.GetResource(), o, p.GetNamespace())
	})
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
