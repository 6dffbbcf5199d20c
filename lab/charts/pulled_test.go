package charts_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ephemeral-castle/castle/lab/charts"
)

func TestTheChartsOfAFolderAreServedEverywhere(t *testing.T) {
	folder := t.TempDir()
	for file, text := range map[string]string{"gateway-helm-v1.2.3.tgz": "gateway", "web-0.4.0+b1.tgz": "web",
		"metallb-0.15.3.tgz": "metallb", "index.yaml": "", "web.tgz": ""} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pulled, err := charts.ReadFolder(folder)
	if err != nil || len(pulled) != 3 {
		t.Fatalf("%d charts, %v", len(pulled), err)
	}
	for at, want := range map[[2]string]bool{{"gateway-helm", "v1.2.3"}: true,
		{"gateway-helm", "1.2.4"}: false,
		{"gateway-helm", "1.x"}:   true, {"gateway-helm", ""}: true, {"gateway", "v1.2.3"}: false} {
		if got := charts.Has(pulled, at[0], at[1]); got != want {
			t.Errorf("%s: %t", at, got)
		}
	}
	r, err := charts.New(charts.Options{Speed: 1, Pulled: pulled, Elsewhere: []string{
		"https://charts.example.org/stable", "oci://ghcr.io/me/charts/web", "oci://quay.io/all"}})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"https://charts.example.org/stable/web-0.4.0+b1.tgz":   "web",
		"https://metallb.github.io/metallb/metallb-0.15.3.tgz": "metallb", // in place of the stand-in
	} {
		if got := string(fetch(t, r, url)); got != want {
			t.Errorf("%s: %s", url, got)
		}
	}
	if index := string(fetch(t, r, "https://charts.example.org/stable/index.yaml")); !strings.Contains(index,
		`"version":"v1.2.3"`) {
		t.Error(index)
	}
	for host, repository := range map[string]string{"ghcr.io": "me/charts/web", "quay.io": "all/web"} {
		shop := r.Handler(host)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if request.URL.Path != "/v2/" { // which the lab's other registries answer
				shop.ServeHTTP(w, request)
			}
		}))
		defer server.Close()
		tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/" + repository + ":0.4.0_b1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Image(tag); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if r.Serves("ghcr.io", "/v2/me/charts/gateway-helm/manifests/v1.2.3") || r.Serves("ghcr.io", "/v2/") {
		t.Error("the registry has more than the chart that its URL names")
	}
	if _, err := charts.ReadFolder(t.TempDir()); err == nil {
		t.Error("a folder without charts is accepted")
	}
}
