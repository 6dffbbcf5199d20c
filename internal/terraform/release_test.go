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

	"github.com/ProtonMail/gopenpgp/v2/crypto"
	"github.com/hashicorp/hc-install/releases"
	"github.com/opentofu/tofudl"
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

// tofuSite serves a release of OpenTofu for darwin_arm64, signed with a key of its own.
func tofuSite(t *testing.T, change func(archive []byte) []byte) (options []tofudl.ConfigOpt) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := crypto.GenerateKey("castle", "castle@example.org", "x25519", 0)
	must(err)
	public, err := key.GetArmoredPublicKey()
	must(err)
	storage, err := tofudl.NewFilesystemStorage(t.TempDir())
	must(err)
	mirror, err := tofudl.NewMirror(tofudl.MirrorConfig{}, storage, nil)
	must(err)
	release, err := tofudl.NewReleaseBuilder(key)
	must(err)
	must(release.PackageBinary(tofudl.PlatformMacOS, tofudl.ArchitectureARM64, []byte("for a Mac"), nil))
	must(release.Build(t.Context(), "1.12.6", mirror))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		mirror.ServeHTTP(recorder, r)
		body := recorder.Body.Bytes()
		if strings.HasSuffix(r.URL.Path, ".tar.gz") {
			body = change(body)
		}
		w.WriteHeader(recorder.Code)
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return []tofudl.ConfigOpt{tofudl.ConfigGPGKey(public), tofudl.ConfigAPIURL(server.URL + "/api.json"),
		tofudl.ConfigDownloadMirrorURLTemplate(server.URL + "/v{{.Version}}/{{.Artifact}}")}
}

func TestDownloadInstallsOpenTofuThatIsSigned(t *testing.T) {
	as := func(archive []byte) []byte { return archive }
	site, dir := tofuSite(t, as), t.TempDir()
	if err := downloadTofu(t.Context(), "1.12.6", "darwin_arm64", dir, site...); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "tofu"))
	if err != nil || string(content) != "for a Mac" {
		t.Errorf("%q, %v", content, err)
	}
	changed := tofuSite(t, func(archive []byte) []byte { return append(archive, 0) })
	other := append(tofuSite(t, as)[:1], site[1:]...) // with another key
	for name, c := range map[string]struct {
		release, platform string
		from              []tofudl.ConfigOpt
	}{
		"a platform without a release": {"1.12.6", "linux_arm64", site},
		"no such release":              {"1.12.7", "darwin_arm64", site},
		"an archive that was changed":  {"1.12.6", "darwin_arm64", changed},
		"another key":                  {"1.12.6", "darwin_arm64", other},
	} {
		dir := t.TempDir()
		if err := downloadTofu(t.Context(), c.release, c.platform, dir, c.from...); err == nil {
			t.Errorf("%s is no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("%s leaves %v, %v", name, files, err)
		}
	}
}
