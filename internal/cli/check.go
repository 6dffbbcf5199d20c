package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newCheck(a *app) *cobra.Command {
	return a.valueFlags(&cobra.Command{
		Use:   "check [CLUSTER]",
		Short: "Validate the configuration offline",
		Long: `Validate the configuration of a cluster, or of every cluster of the repository,
and report all problems at once, each with file, line and remedy: files, graph,
references and types; addresses, networks, names and VM ids, also those of other
clusters; the Talos machine configuration, rendered and validated as Talos does;
incompatible versions; secrets in files for Git; file modes. castle runs nothing
and contacts nothing. docs/check.md lists the rules. Warnings do not change the
exit code.`,
		Example: `  castle check blue
  castle check
  castle check blue -o json`,
		SuggestFor: []string{"validate", "lint"},
		Args:       a.optionalCluster(),
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := a.complete(cluster.Options{})
			if err != nil {
				return err
			}
			report, err := cluster.Check(o, args...)
			if err != nil {
				return err
			}
			return printCheck(a, report)
		},
	})
}

// checkProblem is a diagnostic as -o json prints it.
type checkProblem struct {
	Severity string `json:"severity"` // error or warning
	// of docs/check.md; empty: the files cannot be read or do not fit together
	Rule    string `json:"rule,omitempty"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Summary string `json:"summary"`
	Detail  string `json:"detail,omitempty"`
}

// printCheck prints the diagnostics. An error among them decides the exit code.
func printCheck(a *app, r *check.Report) error {
	problems, warnings := []checkProblem{}, 0
	for _, d := range r.Diagnostics {
		p := checkProblem{Severity: "error", Rule: string(check.RuleOf(d)), Summary: d.Summary,
			Detail: d.Detail}
		if d.Severity == hcl.DiagWarning {
			p.Severity = "warning"
			warnings++
		}
		if d.Subject != nil {
			p.File, p.Line = d.Subject.Filename, d.Subject.Start.Line
		}
		problems = append(problems, p)
	}
	if a.output != "json" {
		_, err := ui.WriteDiagnostics(a.commands, r.Diagnostics, r.Files, coloured(a, a.stderr))
		if err != nil {
			return err
		}
	}
	annotate(a, r.Diagnostics)
	clusters, wrong := append([]string{}, r.Clusters...), len(problems)-warnings
	err := a.print(map[string]any{"clusters": clusters, "problems": problems}, func(w io.Writer) {
		if len(clusters) > 0 {
			fmt.Fprintf(w, "checked %s: %s, %s\n", strings.Join(clusters, ", "), count(wrong, "problem"),
				count(warnings, "warning"))
		}
	})
	if err == nil && wrong > 0 {
		return exitError(exitUsage)
	}
	return err
}
