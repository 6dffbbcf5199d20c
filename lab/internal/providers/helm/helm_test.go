package helm

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/repo"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
)

// cluster is Helm's view of a cluster: a store of releases and an API that accepts every object.
type cluster struct {
	releases *storage.Storage
	api      *kubefake.FailingKubeClient
	charts   string // the URL of a repository
	folder   string // what it serves
}

func start(t *testing.T) (*cluster, *provider) {
	t.Helper()
	memory := driver.NewMemory()
	memory.SetNamespace("metallb-system")
	c := &cluster{releases: storage.Init(memory), folder: t.TempDir(),
		api: &kubefake.FailingKubeClient{PrintingKubeClient: kubefake.PrintingKubeClient{Out: io.Discard}}}
	server := httptest.NewServer(http.FileServer(http.Dir(c.folder)))
	t.Cleanup(server.Close)
	c.charts = server.URL
	settings := cli.New()
	settings.RepositoryCache, settings.RepositoryConfig = t.TempDir(),
		filepath.Join(t.TempDir(), "repositories.yaml")
	t.Setenv("HELM_CACHE_HOME", t.TempDir())
	return c, &provider{settings: settings, configuration: func(string) (*action.Configuration, error) {
		return &action.Configuration{Releases: c.releases, KubeClient: c.api,
			Capabilities: chartutil.DefaultCapabilities.Copy(), Log: func(string, ...any) {}}, nil
	}}
}

// publish puts versions of the chart into the repository.
func (c *cluster) publish(t *testing.T, versions ...string) {
	t.Helper()
	for _, version := range versions {
		if _, err := chartutil.Save(simple(version), c.folder); err != nil {
			t.Fatal(err)
		}
	}
	index, err := repo.IndexDirectory(c.folder, c.charts)
	if err == nil {
		err = index.WriteFile(filepath.Join(c.folder, "index.yaml"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func simple(version string) *chart.Chart {
	return &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "metallb", Version: version,
			AppVersion: "v" + version},
		Templates: []*chart.File{
			{Name: "templates/map.yaml",
				Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n" +
					"  mode: {{ .Values.mode | default \"none\" }}\n")},
		},
	}
}

func (c *cluster) resource(t *testing.T, p *provider) *plugintest.Resource {
	t.Helper()
	return plugintest.New(t, plugin.Provider{Resources: p.resources()}, "helm_release")
}

func (c *cluster) config(version string, values ...string) plugin.Values {
	v := plugin.Values{
		"name": cty.StringVal("metallb"), "namespace": cty.StringVal("metallb-system"),
		"chart":      cty.StringVal("metallb"),
		"repository": cty.StringVal(c.charts), "version": cty.StringVal(version), "wait": cty.False,
	}
	for _, text := range values {
		v["values"] = cty.ListVal([]cty.Value{cty.StringVal(text)})
	}
	return v
}

func (c *cluster) last(t *testing.T) *release.Release {
	t.Helper()
	r, err := c.releases.Last("metallb")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAReleaseIsInstalledUpgradedAndUninstalled(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2", "0.15.3")
	r := c.resource(t, p)
	must(t, r, c.config("0.15.2", "mode: layer2"))
	if made := c.last(t); made.Chart.Metadata.Version != "0.15.2" ||
		!strings.Contains(made.Manifest, "mode: layer2") {
		t.Errorf("installed %s:\n%s", made.Chart.Metadata.Version, made.Manifest)
	}
	r.Settled(c.config("0.15.2", "mode: layer2"))
	must(t, r, c.config("0.15.3", "mode: bgp"))
	if made := c.last(t); made.Version != 2 || made.Chart.Metadata.Version != "0.15.3" ||
		!strings.Contains(made.Manifest, "mode: bgp") {
		t.Errorf("upgraded to revision %d of %s", made.Version, made.Chart.Metadata.Version)
	}
	r.Settled(c.config("0.15.3", "mode: bgp"))
	if diagnostics := r.Destroy(); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Summary)
	}
	if _, err := c.releases.Last("metallb"); !errors.Is(err, driver.ErrReleaseNotFound) {
		t.Errorf("after destroy: %v", err)
	}
}

func must(t *testing.T, r *plugintest.Resource, config plugin.Values) {
	t.Helper()
	if diagnostics := r.Apply(config); len(diagnostics) > 0 {
		t.Fatalf("%s: %s", diagnostics[0].Summary, diagnostics[0].Detail)
	}
}

func TestAFailedFirstInstallLeavesItsNameInUse(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2")
	r := c.resource(t, p)
	config := c.config("0.15.2")
	config["wait"] = cty.True
	c.api.WaitError = errors.New("timed out waiting for the condition")
	diagnostics := r.Apply(config)
	if len(diagnostics) != 1 || diagnostics[0].Summary != "Helm release error" || !r.State.IsNull() {
		t.Fatalf("a failing install: %v, state %#v", diagnostics, r.State)
	}
	c.api.WaitError = nil
	diagnostics = r.Apply(config)
	if len(diagnostics) != 1 || diagnostics[0].Summary != "installation failed" ||
		diagnostics[0].Detail != "cannot re-use a name that is still in use" {
		t.Errorf("a second install: %v", diagnostics)
	}
	config["upgrade_install"] = cty.True
	must(t, r, config)
	if made := c.last(t); made.Version != 2 || made.Info.Status != release.StatusDeployed {
		t.Errorf("upgrade_install after a failed install: revision %d is %s", made.Version, made.Info.Status)
	}
}

func TestAnInterruptedInstallIsInTheWayOfEverything(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2")
	must(t, c.resource(t, p), c.config("0.15.2"))
	pending := c.last(t)
	pending.Info.Status = release.StatusPendingInstall
	if err := c.releases.Update(pending); err != nil {
		t.Fatal(err)
	}
	r := c.resource(t, p)
	config := c.config("0.15.2")
	if diagnostics := r.Apply(config); len(diagnostics) != 1 ||
		diagnostics[0].Detail != "cannot re-use a name that is still in use" {
		t.Errorf("install: %v", diagnostics)
	}
	config["upgrade_install"] = cty.True
	if diagnostics := r.Apply(config); len(diagnostics) != 1 ||
		!strings.Contains(diagnostics[0].Detail,
			"another operation (install/upgrade/rollback) is in progress") {
		t.Errorf("upgrade: %v", diagnostics)
	}
}

func TestUpgradeInstallTakesOverWhatIsDeployed(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2")
	must(t, c.resource(t, p), c.config("0.15.2"))
	config := c.config("0.15.2", "mode: layer2")
	config["upgrade_install"] = cty.True
	r := c.resource(t, p) // another state that knows nothing of the release
	must(t, r, config)
	if made := c.last(t); made.Version != 2 {
		t.Errorf("revision %d", made.Version)
	}
	r.Settled(config)
}

func TestAFailedReleaseIsPlannedToBeDeployed(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2")
	r := c.resource(t, p)
	must(t, r, c.config("0.15.2"))
	failed := c.last(t)
	failed.Info.Status = release.StatusFailed
	if err := c.releases.Update(failed); err != nil {
		t.Fatal(err)
	}
	r.Read()
	plan, _ := r.Plan(c.config("0.15.2"))
	if !plan.Changes() || !plan.Planned.GetAttr("status").RawEquals(cty.StringVal("deployed")) {
		t.Errorf("planned status %#v", plan.Planned.GetAttr("status"))
	}
}

func TestSetValuesAreTypedAndSensitiveOnesAreCloaked(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2")
	r := c.resource(t, p)
	config := c.config("0.15.2", "nested: {kept: 1, token: old}")
	one := func(name, value, kind string) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"name": cty.StringVal(name), "value": cty.StringVal(value),
			"type": plugin.Text(kind)})
	}
	config["set"] = cty.ListVal([]cty.Value{one("mode", "layer2", ""), one("port", "8080", "string")})
	config["set_sensitive"] = cty.ListVal([]cty.Value{one("nested.token", "hush", "")})
	must(t, r, config)
	made := c.last(t).Config
	nested := made["nested"].(map[string]any)
	if made["mode"] != "layer2" || made["port"] != "8080" || nested["token"] != "hush" ||
		nested["kept"] == nil {
		t.Errorf("installed with %v", made)
	}
	shown := r.State.GetAttr("metadata").GetAttr("values").AsString()
	if strings.Contains(shown, "hush") || !strings.Contains(shown, "(sensitive value)") {
		t.Errorf("metadata.values: %s", shown)
	}
	r.Settled(config)
}

func TestALocalChartHasItsOwnVersion(t *testing.T) {
	c, p := start(t)
	if err := chartutil.SaveDir(simple("0.1.0"), c.folder); err != nil {
		t.Fatal(err)
	}
	config := plugin.Values{"name": cty.StringVal("metallb"), "namespace": cty.StringVal("metallb-system"),
		"chart": cty.StringVal(filepath.Join(c.folder, "metallb")), "wait": cty.False}
	r := c.resource(t, p)
	must(t, r, config)
	r.Settled(config)
	if got := r.State.GetAttr("version"); !got.RawEquals(cty.StringVal("0.1.0")) {
		t.Errorf("version %#v", got)
	}
	if err := os.RemoveAll(filepath.Join(c.folder, "metallb")); err != nil {
		t.Fatal(err)
	}
	if _, diagnostics := r.Plan(config); len(diagnostics) != 1 ||
		diagnostics[0].Summary != "Error locating chart" {
		t.Errorf("plan without the chart: %v", diagnostics)
	}
}

func TestAVersionThatTheRepositoryLacksIsRefused(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2")
	_, diagnostics := c.resource(t, p).Plan(c.config("9.9.9"))
	if len(diagnostics) != 1 || !strings.Contains(diagnostics[0].Detail, "9.9.9") {
		t.Errorf("diagnostics: %v", diagnostics)
	}
}

func TestAnUnreachableAPILooksLikeAMissingRelease(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2")
	r := c.resource(t, p)
	must(t, r, c.config("0.15.2"))
	p.configuration = func(string) (*action.Configuration, error) {
		return nil, errors.New("connection refused")
	}
	if diagnostics := r.Read(); len(diagnostics) > 0 || !r.State.IsNull() {
		t.Errorf("read: %v, %#v", diagnostics, r.State)
	}
}

func TestAnImportedReleaseIsUpgradedOnce(t *testing.T) {
	c, p := start(t)
	c.publish(t, "0.15.2")
	must(t, c.resource(t, p), c.config("0.15.2"))
	r := c.resource(t, p)
	if diagnostics := r.Import("metallb"); len(diagnostics) != 1 ||
		diagnostics[0].Summary != "Unable to parse import identifier" {
		t.Errorf("import without a namespace: %v", diagnostics)
	}
	if diagnostics := r.Import("metallb-system/metallb"); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Detail)
	}
	must(t, r, c.config("0.15.2"))
	r.Settled(c.config("0.15.2"))
}
