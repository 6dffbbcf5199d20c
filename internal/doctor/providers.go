package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/terraform"
)

// providers looks where Terraform would install the stages' providers from. A
// registry is asked for no more than where its services are.
func (x *examination) providers(ctx context.Context) []Finding {
	sources := map[string]bool{}
	for _, s := range x.Stages {
		for _, source := range s.Providers {
			if !strings.HasPrefix(source, "terraform.io/builtin/") {
				sources[source] = true
			}
		}
	}
	if len(sources) == 0 {
		return green("the stages need none")
	}
	origins, err := terraform.ReadOrigins(x.Environ)
	if err != nil {
		return grey("Terraform's own configuration is not understood here: %v", err)
	}
	silent := map[string]error{} // by address of what was asked
	var here, there []string
	var found []Finding
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		at := origins.Of(source)
		short := strings.TrimPrefix(source, "registry.terraform.io/")
		switch {
		case at.Local != "":
			here = append(here, short)
			continue
		case at.URL == "":
			found = append(found, red("add it to the mirror, or allow `direct` in provider_installation", "%s: no mirror of Terraform's configuration has it for %s_%s, and it may come from nowhere else",
				short, runtime.GOOS, runtime.GOARCH)...)
			continue
		}
		err, asked := silent[at.URL]
		if !asked {
			err = answers(ctx, at.URL)
			silent[at.URL] = err
		}
		switch {
		case err == nil:
			there = append(there, short)
		case terraform.Holds(x.Plugins, source):
			found = append(found, yellow("stages that are initialised already need nothing; for others: "+elsewhere, "%s is in castle's cache, but %s does not answer: %v", short, at.URL, err)...)
		default:
			found = append(found, red(elsewhere, "%s: %s does not answer: %v", short, at.URL, err)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	var said []string
	if len(here) > 0 {
		said = append(said, "in a mirror on this machine: "+strings.Join(here, ", "))
	}
	if len(there) > 0 {
		said = append(said, fmt.Sprintf("%s answers, for %s", strings.Join(slices.Sorted(maps.Keys(silent)), " and "), strings.Join(there, ", ")))
	}
	return green("%s", strings.Join(said, "; "))
}

const elsewhere = "look at the network and its proxy (HTTPS_PROXY), or name a mirror in provider_installation of TF_CLI_CONFIG_FILE"

// answers asks an address once; what counts is that the service is there.
func answers(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reason(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // it is not read
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s", response.Status)
	}
	return nil
}
