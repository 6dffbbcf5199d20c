package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hc-install/product"
	"github.com/hashicorp/hc-install/releases"
)

// Download installs a release of Terraform for any platform into dir. hc-install verifies its signature.
func Download(ctx context.Context, release, platform, dir string) error {
	return download(ctx, release, platform, &releases.ExactVersion{InstallDir: dir})
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
