package charts_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ephemeral-castle/castle/lab/charts"
)

func TestAChartIsAnArtifactInARegistryToo(t *testing.T) {
	r, err := charts.New(charts.Options{Speed: 10, Versions: map[string][]string{"pgo": {"5.8.0"}}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.Handler("registry.developers.crunchydata.com"))
	defer server.Close()
	at, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/crunchydata/pgo")
	if err != nil {
		t.Fatal(err)
	}
	tags, err := remote.List(at)
	if err != nil || strings.Join(tags, " ") != "5.7.4 5.8.0" {
		t.Fatalf("tags %v, %v", tags, err)
	}
	image, err := remote.Image(at.Tag("5.8.0"))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	if kind, err := layers[0].MediaType(); err != nil ||
		kind != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Errorf("media type %s, %v", kind, err)
	}
}

func TestARealDefinitionGoesBeforeTheStandIn(t *testing.T) {
	const real = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    controller-gen.kubebuilder.io/version: v0.21.0
  name: kustomizations.kustomize.toolkit.fluxcd.io
spec:
  group: upstream
`
	r, err := charts.New(charts.Options{Speed: 10, Definitions: map[string][]byte{"flux2": []byte(real)}})
	if err != nil {
		t.Fatal(err)
	}
	rendered := render(t, get(t, r, "https://fluxcd-community.github.io/helm-charts", "flux2", ""), nil)
	all := objects(t, rendered)
	definition := all["CustomResourceDefinition kustomizations.kustomize.toolkit.fluxcd.io"]
	if definition["spec"].(map[string]any)["group"] != "upstream" {
		t.Errorf("the stand-in remains: %v", definition)
	}
	if text := strings.Join(strings.Fields(rendered["flux2/templates/crds.yaml"]), " "); strings.Count(text,
		"name: kustomizations.kustomize.toolkit.fluxcd.io ") != 1 ||
		all["CustomResourceDefinition gitrepositories.source.toolkit.fluxcd.io"] == nil {
		t.Error("a definition is twice there, or another one is missing")
	}
	for _, name := range []string{"kustomizations.kustomize", "gitrepositories.source"} {
		o := all["CustomResourceDefinition "+name+".toolkit.fluxcd.io"]
		labels := o["metadata"].(map[string]any)["labels"].(map[string]any)
		if labels["app.kubernetes.io/part-of"] != "flux" || labels["app.kubernetes.io/version"] != "2.8.5" {
			t.Errorf("flux check does not find %s: %v", name, labels)
		}
	}
}
