package providers

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/gopenpgp/v2/crypto"
	"github.com/opentofu/tofudl"
	"github.com/opentofu/tofudl/branding"
)

// site serves a release of OpenTofu for darwin_arm64, which OpenTofu's own library makes and signs.
func site(t *testing.T, change func(archive []byte) []byte) releases {
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
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	program, err := z.Create("tofu")
	must(err)
	_, err = program.Write([]byte("for a Mac"))
	must(err)
	must(z.Close())
	release, err := tofudl.NewReleaseBuilder(key)
	must(err)
	must(release.AddArtifact("tofu_1.12.6_darwin_arm64.zip", archive.Bytes()))
	must(release.Build(t.Context(), "1.12.6", mirror))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		mirror.ServeHTTP(recorder, r)
		body := recorder.Body.Bytes()
		if strings.HasSuffix(r.URL.Path, ".zip") {
			body = change(body)
		}
		w.WriteHeader(recorder.Code)
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return releases{server.URL, public}
}

func TestOpenTofuIsInstalledIfItIsSigned(t *testing.T) {
	as := func(archive []byte) []byte { return archive }
	signed := site(t, as)
	file := filepath.Join(t.TempDir(), "tofu")
	if err := signed.download(t.Context(), "1.12.6", "darwin_arm64", file); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil || string(content) != "for a Mac" {
		t.Errorf("%q, %v", content, err)
	}
	changed := site(t, func(archive []byte) []byte { return append(archive, 0) })
	for name, c := range map[string]struct {
		release, platform string
		from              releases
		want              string
	}{
		"a platform without a release": {"1.12.6", "linux_arm64", signed, ""},
		"no such release":              {"1.12.7", "darwin_arm64", signed, ""},
		"an archive that was changed":  {"1.12.6", "darwin_arm64", changed, "does not have the checksum"},
		"another key": {"1.12.6", "darwin_arm64", releases{signed.site, openTofu.key},
			"signature made by unknown entity"},
	} {
		file := filepath.Join(t.TempDir(), "tofu")
		err := c.from.download(t.Context(), c.release, c.platform, file)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s leaves a file", name)
		}
	}
}

func TestTheKeyIsThatOfOpenTofu(t *testing.T) {
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(openTofu.key))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%X", keys[0].PrimaryKey.Fingerprint); got != branding.GPGKeyFingerprint {
		t.Errorf("%s, want %s", got, branding.GPGKeyFingerprint)
	}
}
