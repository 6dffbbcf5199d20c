package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hc-install/product"
	"github.com/hashicorp/hc-install/releases"
	"github.com/opentofu/tofudl"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Download installs the release of the binary for any platform, such as linux_amd64, into dir. hc-install
// verifies HashiCorp's signature, and tofudl that of OpenTofu.
func (b Binary) Download(ctx context.Context, platform, dir string) (err error) {
	limited, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	if b.Program == OpenTofu.Program {
		err = downloadTofu(limited, b.Version, platform, dir)
	} else {
		err = download(limited, b.Version, platform, &releases.ExactVersion{InstallDir: dir})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %s for %s: %w", b.Program, b.Version, platform, err)
	}
	return nil
}

func download(ctx context.Context, release, platform string, from *releases.ExactVersion) error {
	v, err := version.NewVersion(release)
	if err != nil {
		return err
	}
	from.Product, from.Version, from.Timeout = product.Terraform, v, installTimeout
	from.HTTPClient = &http.Client{Transport: asOtherPlatform{http.DefaultTransport, platform}}
	_, err = from.Install(ctx)
	return err
}

func downloadTofu(ctx context.Context, release, platform, dir string, from ...tofudl.ConfigOpt) error {
	client := tofudl.ConfigHTTPClient(&http.Client{}) // it would change the default one
	site, err := tofudl.New(append(from, client)...)
	if err != nil {
		return err
	}
	system, processor, _ := strings.Cut(platform, "_")
	binary, err := site.Download(ctx, tofudl.DownloadOptVersion(tofudl.Version(release)),
		tofudl.DownloadOptPlatform(tofudl.Platform(system)),
		tofudl.DownloadOptArchitecture(tofudl.Architecture(processor)))
	if err != nil {
		return err
	}
	return atomicfile.WriteMode(filepath.Join(dir, OpenTofu.Program), binary, 0o755)
}

// asOtherPlatform shows hc-install, which installs for the machine that it runs on, the builds of another
// platform as that machine's own. The signature covers the names of the archives, which stay.
type asOtherPlatform struct {
	transport http.RoundTripper
	platform  string
}

// RoundTrip implements http.RoundTripper.
func (a asOtherPlatform) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.transport.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK ||
		!strings.HasSuffix(request.URL.Path, "/index.json") {
		return response, err
	}
	var index map[string]any
	err = json.NewDecoder(response.Body).Decode(&index)
	if closing := response.Body.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, err
	}
	all, _ := index["builds"].([]any)
	builds := []any{}
	for _, b := range all {
		if build, is := b.(map[string]any); is && fmt.Sprint(build["os"], "_", build["arch"]) == a.platform {
			build["os"], build["arch"] = runtime.GOOS, runtime.GOARCH
			builds = append(builds, build)
		}
	}
	index["builds"] = builds
	text, err := json.Marshal(index)
	if err != nil {
		return nil, err
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return response, nil
}
