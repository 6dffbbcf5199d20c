package charts_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/repo"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/charts"
)

// places are the repositories, charts and the stages that install them.
func places() []struct{ repository, chart, variables string } {
	return []struct{ repository, chart, variables string }{
		{"https://metallb.github.io/metallb", "metallb", "networking/metallb"},
		{"https://helm.cilium.io", "cilium", "platform/cilium"},
		{"https://charts.longhorn.io", "longhorn", "storage/longhorn"},
		{"https://charts.external-secrets.io", "external-secrets", "engine/external-secrets"},
		{"https://fluxcd-community.github.io/helm-charts", "flux2", "gitops/flux"},
		{"https://charts.hetzner.cloud", "hcloud-cloud-controller-manager", "networking/hcloud-controller"},
		{"https://charts.hetzner.cloud", "hcloud-csi", "storage/hcloud-csi"},
	}
}

func fetch(t *testing.T, r *charts.Repositories, url string) []byte {
	t.Helper()
	host, rest, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
	w := httptest.NewRecorder()
	r.Handler(host).ServeHTTP(w, httptest.NewRequest("GET", "/"+rest, nil))
	if w.Code != 200 {
		t.Fatalf("GET %s: %d", url, w.Code)
	}
	content, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// get does what Helm does: read the index, choose a version, fetch its archive.
func get(t *testing.T, r *charts.Repositories, repository, name, version string) *chart.Chart {
	t.Helper()
	var index repo.IndexFile
	if err := yaml.UnmarshalStrict(fetch(t, r, repository+"/index.yaml"), &index); err != nil {
		t.Fatal(err)
	}
	entry, err := index.Get(name, version)
	if err != nil {
		t.Fatal(err)
	}
	url, err := repo.ResolveReferenceURL(repository, entry.URLs[0])
	if err != nil {
		t.Fatal(err)
	}
	archive := fetch(t, r, url)
	if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != entry.Digest {
		t.Errorf("%s: digest differs from the index", url)
	}
	c, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func render(t *testing.T, c *chart.Chart, values map[string]any) map[string]string {
	t.Helper()
	all, err := chartutil.ToRenderValues(c, values,
		chartutil.ReleaseOptions{Name: c.Name(), Namespace: "there", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var (
	separator      = regexp.MustCompile(`(?m)^---\s*$`)
	defaultVersion = regexp.MustCompile(`default +=\s*"(\d+\.\d+\.\d+)"`)
)

// objects lists "Kind name" of everything that a chart makes, in no order.
func objects(t *testing.T, rendered map[string]string) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for file, text := range rendered {
		for _, document := range separator.Split(text, -1) {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, document)
			}
			if len(object) > 0 {
				found[object["kind"].(string)+" "+object["metadata"].(map[string]any)["name"].(string)] =
					object
			}
		}
	}
	return found
}

func TestEveryStageFindsItsChartInTheVersionThatItPins(t *testing.T) {
	r, err := charts.New(charts.Options{Speed: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places() {
		variables, err := os.ReadFile("../../stages/" + p.variables + "/variables.tf")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(variables), `"`+p.repository+`"`) {
			t.Errorf("stage %s does not name %s", p.variables, p.repository)
		}
		version := defaultVersion.FindSubmatch(variables)
		if version == nil {
			t.Fatalf("stage %s pins no version", p.variables)
		}
		if c := get(t, r, p.repository, p.chart,
			string(version[1])); c.Metadata.Version != string(version[1]) {
			t.Errorf("%s: archive holds version %s, asked for %s", p.chart, c.Metadata.Version, version[1])
		}
	}
}

func TestAnotherVersionIsOfferedOnRequest(t *testing.T) {
	r, err := charts.New(charts.Options{Speed: 1,
		Versions: map[string][]string{"metallb": {"0.15.2", "0.15.3"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"0.15.2", "0.15.3"} {
		if c := get(t, r, "https://metallb.github.io/metallb", "metallb",
			version); c.Metadata.Version != version {
			t.Errorf("asked for %s, got %s", version, c.Metadata.Version)
		}
	}
}

func TestChartsMakeWhatTheGatesLookFor(t *testing.T) {
	r, err := charts.New(charts.Options{Speed: 10})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"metallb": {"Deployment metallb-controller", "DaemonSet metallb-speaker",
			"Service metallb-webhook-service", "Secret metallb-webhook-cert",
			"ValidatingWebhookConfiguration metallb-webhook-configuration",
			"CustomResourceDefinition ipaddresspools.metallb.io",
			"CustomResourceDefinition l2advertisements.metallb.io"},
		"longhorn": {"DaemonSet longhorn-manager", "Deployment longhorn-driver-deployer",
			"Service longhorn-admission-webhook", "ConfigMap longhorn-storageclass",
			"CustomResourceDefinition volumes.longhorn.io", "CustomResourceDefinition nodes.longhorn.io"},
		"external-secrets": {"Deployment external-secrets", "Deployment external-secrets-webhook",
			"Deployment external-secrets-cert-controller", "Service external-secrets-webhook",
			"ValidatingWebhookConfiguration secretstore-validate",
			"ValidatingWebhookConfiguration externalsecret-validate",
			"CustomResourceDefinition clustersecretstores.external-secrets.io"},
		"hcloud-cloud-controller-manager": {"Deployment hcloud-cloud-controller-manager"},
		"hcloud-csi": {"Deployment hcloud-csi-controller", "DaemonSet hcloud-csi-node",
			"CSIDriver csi.hetzner.cloud", "StorageClass hcloud-volumes"},
		"flux2": {"Deployment source-controller", "Deployment kustomize-controller",
			"Deployment helm-controller", "Deployment notification-controller",
			"CustomResourceDefinition gitrepositories.source.toolkit.fluxcd.io",
			"CustomResourceDefinition kustomizations.kustomize.toolkit.fluxcd.io",
			"CustomResourceDefinition helmreleases.helm.toolkit.fluxcd.io"},
	}
	for _, p := range places() {
		found := objects(t, render(t, get(t, r, p.repository, p.chart, ""), nil))
		for _, name := range want[p.chart] {
			if found[name] == nil {
				t.Errorf("chart %s makes no %s", p.chart, name)
			}
		}
	}
}

func TestPodsTakeTheirTimeDividedByTheSpeed(t *testing.T) {
	r, err := charts.New(charts.Options{Speed: 4})
	if err != nil {
		t.Fatal(err)
	}
	rendered := render(t, get(t, r, "https://metallb.github.io/metallb", "metallb", ""), nil)
	if controller := rendered["metallb/templates/controller.yaml"]; !strings.Contains(controller,
		"lab.castle/ready-after: 3000ms") {
		t.Errorf("twelve seconds at speed 4 are not three:\n%s", controller)
	}
}

func TestMetalLBsFaultsAreInItsChart(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		o := charts.Options{Speed: 10}
		if faulty {
			o.LateCRDs, o.SpeakerNodes = true, "example.com/speaker"
		}
		r, err := charts.New(o)
		if err != nil {
			t.Fatal(err)
		}
		found := objects(t, render(t, get(t, r, "https://metallb.github.io/metallb", "metallb", ""), nil))
		if _, there := found["CustomResourceDefinition ipaddresspools.metallb.io"]; there == faulty {
			t.Errorf("faulty %t: CRD %t", faulty, there)
		}
		late := found["ConfigMap metallb-late-crds"]
		if (late != nil) != faulty {
			t.Errorf("faulty %t: %v", faulty, late)
		}
		if faulty {
			kept := objects(t,
				map[string]string{"crds.yaml": late["data"].(map[string]any)["crds.yaml"].(string)})
			if kept["CustomResourceDefinition ipaddresspools.metallb.io"] == nil ||
				kept["CustomResourceDefinition bgppeers.metallb.io"] == nil {
				t.Errorf("the ConfigMap lacks CRDs: %d", len(kept))
			}
		}
		speaker := found["DaemonSet metallb-speaker"]["spec"].(map[string]any)
		spec := speaker["template"].(map[string]any)["spec"].(map[string]any)
		selector, _ := spec["nodeSelector"].(map[string]any)
		if (selector["example.com/speaker"] == "true") != faulty {
			t.Errorf("faulty %t: the speaker selects %v", faulty, selector)
		}
	}
}

func TestFluxLeavesOutWhatIsNotAskedFor(t *testing.T) {
	r, err := charts.New(charts.Options{Speed: 10})
	if err != nil {
		t.Fatal(err)
	}
	off := map[string]any{"create": false}
	found := objects(t, render(t, get(t, r, "https://fluxcd-community.github.io/helm-charts", "flux2", ""),
		map[string]any{"imageAutomationController": off, "imageReflectionController": off}))
	if found["Deployment image-automation-controller"] != nil ||
		found["Deployment source-controller"] == nil {
		t.Error("image automation is made, or everything else is not")
	}
}
