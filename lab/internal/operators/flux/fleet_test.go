package flux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	untypedfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

// kinds maps the kinds of the fake API to their resources.
type kinds struct{ *meta.DefaultRESTMapper }

func (kinds) Reset() {}

// serving returns an applier for the kinds of a test's repository, with MetalLB's on request.
func serving(s *clustertest.Stage, metallb bool) *Applier {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"},
		meta.RESTScopeNamespace)
	if metallb {
		m.Add(schema.GroupVersionKind{Group: "metallb.io", Version: "v1beta1", Kind: "IPAddressPool"},
			meta.RESTScopeNamespace)
	}
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

const (
	operatorsYAML = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: operators, namespace: flux-system, uid: "4", generation: 1 }
spec: { interval: 1h, prune: true, wait: true, path: ./operators,
  sourceRef: { kind: GitRepository, name: flux-system } }
`
	settingsYAML = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: settings, namespace: flux-system, uid: "5", generation: 1 }
spec:
  interval: 1h
  prune: true
  path: ./settings
  dependsOn: [{ name: operators }]
  sourceRef: { kind: GitRepository, name: flux-system }
  postBuild: { substituteFrom: [{ kind: ConfigMap, name: cluster-vars }] }
`
	poolYAML = `apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: { name: main, namespace: metallb-system }
spec: { addresses: ["${pool}"] }
`
)

// followed is a Flux whose repository is there, and the root that points at it.
func followed(t *testing.T, metallb bool) (*clustertest.Stage, *flux) {
	t.Helper()
	s := newStage(0, clustertest.Deployment("flux-system", "source-controller"),
		clustertest.Deployment("flux-system", "kustomize-controller"))
	takesApply(s)
	dir := folder(t, map[string]string{
		"cluster/operators.yaml": operatorsYAML, "cluster/settings.yaml": settingsYAML,
		"settings/pool.yaml":       poolYAML,
		"operators/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: { name: metallb-system }\n",
	})
	s.Create(t, repositories(), strings.Replace(gitRepository, "SERVER", served(t, dir), 1))
	s.Add(t, credentials())
	s.Create(t, kustomizations(), strings.Replace(rootKustomization, `"prune":true`,
		`"path":"./cluster","prune":true`, 1))
	return s, New(s.World, NewFleet(s.World, serving(s, metallb), ""), t.TempDir())
}

func TestFluxAppliesWhatTheFolderHoldsInItsOrderAndWithVariables(t *testing.T) {
	s, f := followed(t, true)
	for range 3 {
		s.Look(t, f)
	}
	settings := func() *unstructured.Unstructured {
		return s.Get(t, kustomizations(), "flux-system", "settings")
	}
	if got, want := cluster.MessageOf(settings().Object, "Ready"),
		`substitute from 'ConfigMap/cluster-vars' error: configmaps "cluster-vars" not found`; got != want {
		t.Errorf("settings without cluster-vars: %q, want %q", got, want)
	}
	s.Add(t,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "cluster-vars"},
			Data: map[string]string{"pool": "192.0.2.1-192.0.2.9"}})
	s.Look(t, f)
	pool := s.Get(t, pools(), "metallb-system", "main")
	addresses, _, err := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
	if err != nil || len(addresses) != 1 || addresses[0] != "192.0.2.1-192.0.2.9" ||
		pool.GetLabels()[ownerLabel] != "settings" {
		t.Errorf("pool %v, labels %v, %v", addresses, pool.GetLabels(), err)
	}
	if got := inventory(settings()); len(got) != 1 ||
		cluster.Titled(got[0]) != "IPAddressPool/metallb-system/main" ||
		cluster.ConditionOf(settings().Object, "Ready") != "True" {
		t.Errorf("settings: inventory %v, %v", got, settings().Object["status"])
	}
}

func TestAKindThatNobodyServesYetIsSaidAndTriedAgain(t *testing.T) {
	s, f := followed(t, false)
	s.Add(t,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "cluster-vars"}})
	for range 3 {
		s.Look(t, f)
	}
	settings := func() *unstructured.Unstructured {
		return s.Get(t, kustomizations(), "flux-system", "settings")
	}
	if got, want := cluster.MessageOf(settings().Object, "Ready"),
		`IPAddressPool/metallb-system/main dry-run failed: no matches for kind "IPAddressPool" in version `+
			`"metallb.io/v1beta1"`; got != want {
		t.Errorf("settings: %q, want %q", got, want)
	}
	f.fleet.a = serving(s, true)
	s.Look(t, f)
	if got := cluster.ConditionOf(settings().Object, "Ready"); got != "True" {
		t.Errorf("settings, once MetalLB is there: %v", settings().Object["status"])
	}
}

func TestADeletedKustomizationTakesWithItWhatItBrought(t *testing.T) {
	s, f := followed(t, true)
	s.Add(t,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "cluster-vars"}})
	for range 4 {
		s.Look(t, f)
	}
	settings := s.Get(t, kustomizations(), "flux-system", "settings")
	now := metav1.NewTime(s.Time)
	settings.SetDeletionTimestamp(&now) // the fake API deletes at once, finalizers or not
	if _, err := s.World.Untyped.Resource(kustomizations()).Namespace("flux-system").
		Update(t.Context(), settings,
			metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, f)
	left, err := s.World.List(t.Context(), pools(), "")
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if got := s.Get(t, kustomizations(), "flux-system", "settings").GetFinalizers(); len(got) != 0 {
		t.Errorf("held by %v", got)
	}
}

func pools() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"}
}
