package outdated

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/ephemeral-castle/castle/internal/cluster"
)

const lockFile = `provider "HOST/acme/thing" {
  version     = "1.1.0"
  constraints = "~> 1.1"
  hashes      = ["h1:x"]
}
`

// repository writes a castle repository with one cluster, whose sources are at a host.
func repository(t *testing.T, host, values string) cluster.Options {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"clusters/green/metal/cluster.hcl": `
stage "talos" { source = "platform/talos" }
stage "charts" { source = "storage/charts" }
`,
		"clusters/green/metal/terraform.tfvars":   values,
		"clusters/green/metal/providers.lock.hcl": lockFile,
		"stages/platform/talos/stage.hcl":         "stage { ends_cluster = true }\n",
		"stages/platform/talos/main.tf": `
variable "talos_version" { default = "v1.11.1" }
variable "kubernetes_version" { default = "1.32.0" }
variable "talos_image_factory" { default = "HOST" }
variable "registry_mirrors" { default = { "registry.k8s.io" = { endpoints = ["https://HOST/k8s"] } } }
output "kubeconfig" { value = "" }
output "talosconfig" { value = "" }
`,
		"stages/storage/charts/stage.hcl": "stage { needs = [platform] }\n",
		"stages/storage/charts/main.tf": `
terraform {
  required_providers {
    thing = {
      source  = "HOST/acme/thing"
      version = "~> 1.1"
    }
  }
}
resource "helm_release" "longhorn" {
  name       = "longhorn"
  repository = "https://HOST/charts"
  chart      = "longhorn"
  version    = "1.9.0"
}
resource "helm_release" "other" {
  name       = "other"
  repository = "oci://HOST/oci"
  chart      = "other"
  version    = "2.0.0"
}
resource "helm_release" "late" {
  name       = "late"
  repository = thing.of.charts
  chart      = "late"
  version    = "3.0.0"
}
resource "helm_release" "local" {
  name  = "local"
  chart = "./chart"
}
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "HOST", host)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cluster.Options{Repository: dir, Cluster: "green", Library: fstest.MapFS{},
		Environ: []string{"HOME=" + dir}}
}

// answers are those of a server with all sources.
var answers = map[string]string{
	"/versions": `["v1.11.0", "v1.11.6", "v1.12.4", "v1.12.3", "v1.13.0-alpha.1", "v1.13.2", "v1.99.0", "x"]`,
	"/k8s/v2/kube-apiserver/tags/list?n=10000": `{"tags": ["v1.31.1", "v1.32.9", "v1.33.2",
		"sha256-ab.sig", "v1.99.0"]}`,
	"/charts/index.yaml": "entries:\n  longhorn:\n  - version: v1.9.0\n  - version: 1.9.2\n" +
		"  - version: 1.10.1\n  - version: v1.11.0-rc1\n  other: []\n",
	"/v2/oci/other/tags/list?n=10000":   `{"tags": ["1.0.0", "2.0.0"]}`,
	"/v1/providers/acme/thing/versions": `{"versions": [{"version": "1.2.0"}, {"version": "2.0.0"}]}`,
}

// serve answers as a server with these sources, and returns its transport, its host and what was asked.
func serve(t *testing.T, answers map[string]string) (http.RoundTripper, string, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.RequestURI)
		body, is := answers[r.RequestURI]
		if !is {
			http.NotFound(w, r)
			return
		}
		if to, redirects := strings.CutPrefix(body, "redirect "); redirects {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.Client().Transport, s.Listener.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(slices.Values(asked))
	}
}

// look returns the items as lines: kind name pinned status path; note.
func look(t *testing.T, o cluster.Options, transport http.RoundTripper) map[string]string {
	t.Helper()
	items, err := Run(t.Context(), o, transport)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for _, i := range items {
		line := strings.Join(append([]string{i.Pinned, i.Status}, i.Path...), " ")
		if i.Note != "" {
			line += "; " + i.Note
		}
		lines[i.Kind+" "+i.Name[strings.LastIndex(i.Name, "/")+1:]] = line
	}
	return lines
}

func TestNewerReleasesWithTheSupportedPath(t *testing.T) {
	transport, host, asked := serve(t, answers)
	got := look(t, repository(t, host, ""), transport)
	for name, want := range map[string]string{
		"talos talos": "v1.11.1 outdated v1.11.6 v1.12.4 v1.13.2 v1.99.0; Talos v1.13.2 → v1.99.0: castle " +
			"knows Talos up to v1.13; choose a release of it",
		"kubernetes kubernetes": "1.32.0 outdated v1.32.9 v1.33.2 v1.99.0; Talos v1.11.1 runs 1.34 at " +
			"most; upgrade Talos first",
		"chart longhorn": "1.9.0 outdated 1.9.2 1.10.1",
		"chart other":    "2.0.0 current",
		"chart late":     "3.0.0 unknown; stage charts names its repository by values that only a run knows",
		"provider thing": "1.1.0 outdated 2.0.0; the stages require ~> 1.1",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if len(got) != 7 || len(asked()) != 5 { // helm, which is not locked, has no source
		t.Errorf("%v, asked %q", got, asked())
	}
}

// An upgrade of Talos may wait for Kubernetes.
func TestThePathWaitsForKubernetes(t *testing.T) {
	transport, host, _ := serve(t, answers)
	got := look(t, repository(t, host, `kubernetes_version = "1.29.0"`), transport)["talos talos"]
	if !strings.Contains(got, "bring Kubernetes there first") {
		t.Error(got)
	}
}

// Nothing is current that castle has not looked at.
func TestWithoutAnAnswerTheStatusIsUnknown(t *testing.T) {
	transport, host, _ := serve(t, map[string]string{
		"/versions":          `{"message": "not a list"}`,
		"/charts/index.yaml": "redirect https://example.org/index.yaml",
	})
	got := look(t, repository(t, host, "registry_mirrors = {}"), transport)
	for name, want := range map[string]string{
		"talos talos": "v1.11.1 unknown; the source lists no release that can be compared",
		"kubernetes kubernetes": "1.32.0 unknown; no address in the configuration lists its releases: " +
			"registry_mirrors has none for registry.k8s.io. v1.11.1 runs 1.34 at most",
		"chart longhorn": "1.9.0 unknown; https://" + host + "/charts/index.yaml answers 302 Found",
		"chart other": "2.0.0 unknown; https://" + host + "/v2/oci/other/tags/list?n=10000 answers 404 " +
			"Not Found",
		"provider thing": "1.1.0 unknown; https://" + host + "/v1/providers/acme/thing/versions answers " +
			"404 Not Found",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	// Nobody answers at all.
	for name, line := range look(t, repository(t, "127.0.0.1:1", ""), transport) {
		if !strings.Contains(line, " unknown; Get \"https://127.0.0.1:1/") &&
			name != "provider helm" && name != "chart late" {
			t.Errorf("%s: %q", name, line)
		}
	}
}

// Where Terraform installs providers from a mirror, castle asks no registry.
func TestProvidersComeFromWhereTerraformInstallsThem(t *testing.T) {
	all := maps.Clone(answers)
	transport, host, asked := serve(t, all)
	all["/mirror/"+host+"/acme/thing/index.json"] = `{"versions": {"1.1.0": {}, "1.0.0": {}}}`
	o := repository(t, host, "")
	configure := func(installation string) {
		file := filepath.Join(t.TempDir(), "terraformrc")
		text := "provider_installation {\n" + installation + "\n}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.Environ = []string{"TF_CLI_CONFIG_FILE=" + file}
	}
	configure("network_mirror { url = \"https://" + host + "/mirror/\" }")
	if got := look(t, o, transport)["provider thing"]; got != "1.1.0 current" {
		t.Error(got)
	}
	all["/v2/mirror/acme/thing/tags/list?n=10000"] = `{"tags": ["1.1.0", "1.2.0"]}`
	configure("oci_mirror { repository_template = \"" + host + "/mirror/${namespace}/${type}\" }")
	if got := look(t, o, transport)["provider thing"]; !strings.HasPrefix(got, "1.1.0 outdated 1.2.0") {
		t.Error(got)
	}
	if slices.Contains(asked(), "/v1/providers/acme/thing/versions") {
		t.Errorf("asked the registry: %q", asked())
	}
	configure("")
	if got := look(t, o, transport)["provider thing"]; got !=
		"1.1.0 unknown; Terraform's own configuration names no source of it" {
		t.Error(got)
	}
}

// A chart that its repository does not have is named; where the repository does not answer, nothing is. Each
// repository is asked once for all clusters.
func TestAChartThatItsRepositoryLacks(t *testing.T) {
	transport, host, asked := serve(t, map[string]string{
		"/charts/index.yaml":              "entries:\n  longhorn:\n  - version: 1.8.0\n",
		"/v2/oci/other/tags/list?n=10000": `{"tags": ["1.0.0", "2.0.0-rc1"]}`,
	})
	c, err := repository(t, host, "").Load()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, i := range Charts(t.Context(), transport, c, c) {
		got[i.Name] = i.Status + " " + i.Note
	}
	const lacks = "missing the repository does not have this version"
	if got["longhorn"] != lacks || got["other"] != lacks || !strings.HasPrefix(got["late"], "unknown ") {
		t.Errorf("%q", got)
	}
	if all := asked(); len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("asked twice: %q", all)
	}
	if all := Charts(t.Context(), refusing{}, c); all[0].Status != Unknown {
		t.Errorf("nobody answers: %+v", all[0])
	}
}

// refusing is a network that leads nowhere.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no network")
}

func FuzzAnswers(f *testing.F) {
	for _, body := range answers {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, read := range []func([]byte) []string{list, tags, registry, mirrored,
			func(b []byte) []string { return index(b, "longhorn") }} {
			i := &Item{Pinned: "1.0.0", Status: Unknown, Path: []string{}}
			i.compare(read([]byte(body)))
			if (i.Status == Outdated) != (len(i.Path) > 0) {
				t.Errorf("%+v", i)
			}
		}
	})
}
