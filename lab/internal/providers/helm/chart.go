package helm

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// options returns the source of v's chart.
func options(v plugin.Values) (o action.ChartPathOptions, name string) {
	name = strings.TrimSpace(v.String("chart"))
	if repository := v.String("repository"); repository != "" {
		if _, err := url.ParseRequestURI(repository); err == nil {
			o.RepoURL = repository
		} else if !strings.Contains(name, "/") {
			name = repository + "/" + name
		}
	}
	o.CaFile, o.CertFile, o.KeyFile = v.String("repository_ca_file"), v.String("repository_cert_file"),
		v.String("repository_key_file")
	o.Username, o.Password = v.String("repository_username"), v.String("repository_password")
	if !ownVersion(name, o.RepoURL) {
		o.Version = strings.TrimSpace(v.String("version"))
	}
	return o, name
}

// ownVersion reports whether the chart itself sets its version: a folder or a URL.
func ownVersion(name, repository string) bool {
	if _, err := url.ParseRequestURI(name); err == nil {
		return true
	}
	for _, path := range []string{name, repository} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// chartOf finds, downloads if need be, and loads the chart of v.
func (p *provider) chartOf(v plugin.Values) (*chart.Chart, error) {
	o, name := options(v)
	p.locate.Lock()
	path, err := o.LocateChart(name, p.settings)
	p.locate.Unlock()
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error locating chart",
			Detail: fmt.Sprintf("Unable to locate chart %s: %s", name, err)}
	}
	c, err := loader.Load(path)
	if err != nil {
		return nil,
			&plugin.Problem{Summary: "Error loading chart", Detail: fmt.Sprintf("Unable to load chart %s: %s",
				path, err)}
	}
	if c.Metadata.Dependencies != nil {
		if err := action.CheckDependencies(c, c.Metadata.Dependencies); err != nil {
			return nil, &plugin.Problem{Summary: "Found in Chart.yaml, but missing in charts/ directory",
				Detail: err.Error()}
		}
	}
	return c, nil
}

func installable(c *chart.Chart) error {
	switch c.Metadata.Type {
	case "", "application":
		return nil
	}
	return &plugin.Problem{Summary: "Error checking if chart is installable",
		Detail: fmt.Sprintf("Chart is not installable: %s charts are not installable", c.Metadata.Type)}
}
