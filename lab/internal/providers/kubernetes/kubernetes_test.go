package kubernetes

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
)

func cluster(t *testing.T, name string) (*fake.Clientset, *plugintest.Resource) {
	t.Helper()
	api := fake.NewClientset()
	p := &provider{connect: func() (typed.CoreV1Interface, error) { return api.CoreV1(), nil }}
	return api, plugintest.New(t, plugin.Provider{Resources: p.resources()}, name)
}

// object is a configuration: name in namespace (if any), one label, and data.
func object(name, namespace, label string, data map[string]string) plugin.Values {
	metadata := map[string]cty.Value{"name": cty.StringVal(name),
		"labels": plugin.StringMap(map[string]string{"pod-security.kubernetes.io/enforce": label})}
	if namespace != "" {
		metadata["namespace"] = cty.StringVal(namespace)
	}
	v := plugin.Values{"metadata": cty.ObjectVal(metadata)}
	if data != nil {
		v["data"] = plugin.StringMap(data)
	}
	return v
}

func TestANamespaceIsMadeLabelledAndDeleted(t *testing.T) {
	api, r := cluster(t, "kubernetes_namespace_v1")
	config := object("metallb-system", "", "privileged", nil)
	must(t, r, config)
	made, err := api.CoreV1().Namespaces().Get(t.Context(), "metallb-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// A label that Kubernetes itself adds is no change.
	made.Labels["kubernetes.io/metadata.name"] = "metallb-system"
	if _, err := api.CoreV1().Namespaces().Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Settled(config)
	must(t, r, object("metallb-system", "", "baseline", nil))
	changed, err := api.CoreV1().Namespaces().Get(t.Context(), "metallb-system", metav1.GetOptions{})
	if err != nil || changed.Labels["pod-security.kubernetes.io/enforce"] != "baseline" ||
		changed.Labels["kubernetes.io/metadata.name"] == "" {
		t.Errorf("labels %v, %v", changed.Labels, err)
	}
	if diagnostics := r.Destroy(); len(diagnostics) > 0 {
		t.Error(diagnostics[0].Summary)
	}
	if diagnostics := r.Apply(config); len(diagnostics) > 0 {
		t.Errorf("the namespace was not deleted: %s", diagnostics[0].Summary)
	}
}

func must(t *testing.T, r *plugintest.Resource, config plugin.Values) {
	t.Helper()
	if diagnostics := r.Apply(config); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Summary)
	}
}

func TestASecretFollowsItsConfiguration(t *testing.T) {
	api, r := cluster(t, "kubernetes_secret_v1")
	must(t, r, object("identity", "eso", "x", map[string]string{"clientId": "a", "clientSecret": "b"}))
	r.Settled(object("identity", "eso", "x", map[string]string{"clientId": "a", "clientSecret": "b"}))
	if got := r.State.GetAttr("id"); !got.RawEquals(cty.StringVal("eso/identity")) ||
		!r.State.GetAttr("type").RawEquals(cty.StringVal("Opaque")) {
		t.Errorf("state: %#v", r.State)
	}
	must(t, r, object("identity", "eso", "x", map[string]string{"clientId": "c"}))
	s, err := api.CoreV1().Secrets("eso").Get(t.Context(), "identity", metav1.GetOptions{})
	if err != nil || string(s.Data["clientId"]) != "c" || len(s.Data) != 1 {
		t.Errorf("data %v, %v", s.Data, err)
	}
	s.Data["clientId"] = []byte("meddled")
	if _, err := api.CoreV1().Secrets("eso").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Read()
	if p, _ := r.Plan(object("identity", "eso", "x", map[string]string{"clientId": "c"})); !p.Changes() {
		t.Error("a value that was changed in the cluster goes unnoticed")
	}
}

func TestAnObjectInAnotherNamespaceIsAnother(t *testing.T) {
	_, r := cluster(t, "kubernetes_config_map_v1")
	must(t, r, object("cluster-vars", "flux-system", "x", map[string]string{"cluster_name": "blue"}))
	p, _ := r.Plan(object("cluster-vars", "elsewhere", "x", map[string]string{"cluster_name": "blue"}))
	if len(p.Replaces) != 1 || !strings.Contains(p.Replaces[0], `AttributeName("namespace")`) {
		t.Errorf("replaces: %v", p.Replaces)
	}
}

func TestWhatExistsIsImportedNotTakenOver(t *testing.T) {
	api, r := cluster(t, "kubernetes_config_map_v1")
	_, err := api.CoreV1().ConfigMaps("flux-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-vars",
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "x"}},
		Data: map[string]string{"cluster_name": "old"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := object("cluster-vars", "flux-system", "x", map[string]string{"cluster_name": "blue"})
	diagnostics := r.Apply(config)
	if len(diagnostics) != 1 || !strings.Contains(diagnostics[0].Summary, "already exists") ||
		!r.State.IsNull() {
		t.Fatalf("create over an existing object: %v", diagnostics)
	}
	if diagnostics = r.Import("cluster-vars"); len(diagnostics) != 1 ||
		!strings.Contains(diagnostics[0].Summary, "Unexpected ID format") {
		t.Errorf("import without a namespace: %v", diagnostics)
	}
	if diagnostics = r.Import("flux-system/cluster-vars"); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Summary)
	}
	must(t, r, config)
	r.Settled(config)
	if err := api.CoreV1().ConfigMaps("flux-system").Delete(t.Context(), "cluster-vars",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if r.Read(); !r.State.IsNull() {
		t.Error("what was deleted in the cluster stays in the state")
	}
}
