package terraform

import (
	"archive/zip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hc-install/releases"
)

// releasesSite serves a release of Terraform for two platforms.
func releasesSite(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".zip") {
			w.Header().Set("Content-Type", "application/zip")
			z := zip.NewWriter(w)
			program, err := z.Create("terraform")
			if err == nil {
				_, err = program.Write([]byte(path.Base(r.URL.Path)))
			}
			if err != nil || z.Close() != nil {
				t.Error(err)
			}
			return
		}
		builds := []map[string]string{}
		for _, platform := range []string{"linux_amd64", "darwin_arm64"} {
			system, machine, _ := strings.Cut(platform, "_")
			name := "terraform_1.11.4_" + platform + ".zip"
			builds = append(builds, map[string]string{"name": "terraform", "version": "1.11.4", "os": system,
				"arch": machine, "filename": name, "url": "/terraform/1.11.4/" + name})
		}
		w.Header().Set("Content-Type", "application/json")
		err := json.NewEncoder(w).Encode(map[string]any{"name": "terraform", "version": "1.11.4",
			"builds": builds})
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestDownloadInstallsForAnotherPlatform(t *testing.T) {
	site := releasesSite(t)
	from := func() *releases.ExactVersion {
		return &releases.ExactVersion{InstallDir: t.TempDir(), ApiBaseURL: site,
			SkipChecksumVerification: true}
	}
	for _, platform := range []string{"linux_amd64", "darwin_arm64"} {
		to := from()
		if err := download(t.Context(), "1.11.4", platform, to); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(to.InstallDir, "terraform"))
		if err != nil || string(content) != "terraform_1.11.4_"+platform+".zip" {
			t.Errorf("%s: %q, %v", platform, content, err)
		}
	}
	if err := download(t.Context(), "1.11.4", "linux_arm64", from()); err == nil {
		t.Error("a platform without a release is no error")
	}
	// The signature is verified unless a test asks for less.
	signed := from()
	signed.SkipChecksumVerification = false
	if err := download(t.Context(), "1.11.4", "darwin_arm64", signed); err == nil {
		t.Error("a release without signed checksums was installed")
	}
}
