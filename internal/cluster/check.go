package cluster

import (
	"fmt"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Check judges configurations without running or asking anything: the clusters
// named, or every one of the repository. Cluster, Reporter and Recorded of o do not matter.
func Check(o Options, clusters ...string) (*check.Report, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	if err := OutOfTree(root, o.Repository); err != nil {
		return nil, err
	}
	return check.Run(check.Options{Config: o.config(), Clusters: clusters, StateDir: root})
}

// judged asks what the configuration means before a run changes anything: an
// error stops it, and what is only doubtful is returned, a line each.
func (c *Cluster) CheckConfig() ([]string, error) {
	diags, err := check.Loaded(c.Config, c.Options.config())
	if err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, &ConfigError{Diagnostics: diags, Files: c.Config.Files}
	}
	var warnings []string
	for _, d := range diags {
		place := ""
		if d.Subject != nil {
			place = fmt.Sprintf("%s:%d: ", d.Subject.Filename, d.Subject.Start.Line)
		}
		warnings = append(warnings, fmt.Sprintf("warning: %s%s. %s", place, d.Summary, d.Detail))
	}
	return warnings, nil
}
