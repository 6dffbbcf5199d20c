package helm

import (
	"encoding/json"

	"github.com/zclconf/go-cty/cty"
	"helm.sh/helm/v3/pkg/release"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// describe is a release as the state holds it; v is the plan or the state before.
func describe(r *release.Release, v plugin.Values) (plugin.Values, error) {
	config := "{}"
	if r.Config != nil {
		encoded, err := json.Marshal(cloak(r.Config, v))
		if err != nil {
			return nil, err
		}
		config = string(encoded)
	}
	version := r.Chart.Metadata.Version
	if planned := v.String("version"); sameVersion(planned, version) {
		version = planned
	}
	return plugin.Values{
		"id": cty.StringVal(r.Name), "name": cty.StringVal(r.Name), "namespace": cty.StringVal(r.Namespace),
		"version": cty.StringVal(version), "status": cty.StringVal(r.Info.Status.String()),
		"manifest": cty.NullVal(cty.String), "resources": cty.NullVal(cty.Map(cty.String)),
		"metadata": plugin.Object(plugin.Values{
			"name":           cty.StringVal(r.Name),
			"namespace":      cty.StringVal(r.Namespace),
			"revision":       cty.NumberIntVal(int64(r.Version)),
			"chart":          cty.StringVal(r.Chart.Metadata.Name),
			"version":        cty.StringVal(r.Chart.Metadata.Version),
			"app_version":    cty.StringVal(r.Chart.Metadata.AppVersion),
			"values":         cty.StringVal(config),
			"first_deployed": cty.NumberIntVal(r.Info.FirstDeployed.Unix()),
			"last_deployed":  cty.NumberIntVal(r.Info.LastDeployed.Unix()),
			"notes":          cty.StringVal(r.Info.Notes),
		}),
	}, nil
}

// imported returns the state of an imported release; the values of its installation are unknown.
func imported(b plugin.Block, r *release.Release) (plugin.Values, error) {
	v, err := describe(r, nil)
	if err != nil {
		return nil, err
	}
	v["chart"] = cty.StringVal(r.Chart.Metadata.Name)
	for name, a := range b.Attributes {
		if _, ok := v[name]; !ok && a.Default != cty.NilVal {
			v[name] = a.Default
		}
	}
	return v, nil
}
