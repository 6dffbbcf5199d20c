package castle

import (
	"fmt"

	"github.com/ephemeral-castle/castle/internal/check"
)

// judged asks what the configuration means before a run changes anything: an
// error stops it, and what is only doubtful is returned, a line each.
func (c *Castle) judged() ([]string, error) {
	diags, err := check.Loaded(c.cluster, c.options.config())
	if err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, &ConfigError{Diagnostics: diags, Files: c.cluster.Files}
	}
	var doubts []string
	for _, d := range diags {
		place := ""
		if d.Subject != nil {
			place = fmt.Sprintf("%s:%d: ", d.Subject.Filename, d.Subject.Start.Line)
		}
		doubts = append(doubts, fmt.Sprintf("warning: %s%s. %s", place, d.Summary, d.Detail))
	}
	return doubts, nil
}
