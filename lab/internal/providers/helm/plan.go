package helm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// planRelease reads the chart's version, and plans the status "deployed" for every change.
func (p *provider) planRelease(_ context.Context, plan *plugin.Plan) error {
	v := plan.Change.Planned
	for _, name := range []string{"name", "namespace", "chart", "repository"} {
		if v.Unknown(name) || plan.Change.Config.Unknown("version") {
			return nil
		}
	}
	c, err := p.chartOf(v)
	if err != nil {
		return err
	}
	version := c.Metadata.Version
	if v.Bool("upgrade_install") && plan.Change.Config["version"].IsNull() {
		installed, err := p.installedVersion(v)
		if err != nil {
			return &plugin.Problem{Summary: "Failed to check installed release version", Detail: err.Error()}
		}
		version = firstOf(installed, version)
	} else if wanted := plan.Change.Config.String("version"); wanted != "" && wanted != version {
		if !sameVersion(wanted, version) {
			return &plugin.Problem{Summary: "Planned version is different from configured version",
				Detail: fmt.Sprintf(
					"The version in the configuration is %q but the planned version is %q. \n"+
						"You should update the version in your configuration to %[2]q, or remove the "+
						"version attribute from your configuration.", wanted, version)}
		}
		version = wanted
	}
	v["version"] = cty.StringVal(version)
	v["status"] = cty.StringVal(release.StatusDeployed.String())
	// Only the real provider's experiment "manifest" fills these.
	v["manifest"], v["resources"] = cty.NullVal(cty.String), cty.NullVal(cty.Map(cty.String))
	if plan.Differs("chart", "repository", "version", "values", "set", "set_list", "set_sensitive",
		"status") {
		plan.SetUnknown("metadata")
	}
	return nil
}

func sameVersion(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }

// installedVersion reads the chart version of the release from the cluster, in any state; "" if
// there is none.
func (p *provider) installedVersion(v plugin.Values) (string, error) {
	c, err := p.configuration(v.String("namespace"))
	if err != nil {
		return "", err
	}
	history := action.NewHistory(c)
	history.Max = 1
	found, err := history.Run(v.String("name"))
	switch {
	case errors.Is(err, driver.ErrReleaseNotFound):
		return "", nil
	case err != nil:
		return "", err
	}
	return found[0].Chart.Metadata.Version, nil
}
