package cluster

import (
	"fmt"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Check validates the named clusters, or all of the repository, offline. It ignores Cluster, Reporter and
// Recorded of o.
func Check(o Options, clusters ...string) (*check.Report, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	if err := OutOfTree(root, o.Repository); err != nil {
		return nil, err
	}
	return check.Run(check.Options{Config: o.Config(), Clusters: clusters, StateDir: root})
}

// CheckConfig checks the configuration before a run changes anything. It returns warnings, a line each;
// an error stops the run.
func (c *Cluster) CheckConfig() ([]string, error) {
	diags, err := check.Loaded(c.Config, c.Options.Config())
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
