package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newCheck(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [CLUSTER]",
		Short: "Say what is wrong with a configuration, without asking anybody",
		Long: `Read the configuration of a cluster, or of every cluster of the repository, and
say everything that is wrong at once, each with its file and line and the way
out: files, graph, references and types; addresses, networks, names and VM ids,
also those of the other clusters; Talos' machine configuration, rendered and
judged as Talos does; versions that do not go together; secrets in files for
Git; file modes. Nothing is run and nothing is contacted. docs/check.md lists
the rules. Warnings do not change the exit code.`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("needs at most one cluster, not %d", len(args))
			}
			if len(args) == 0 && len(a.vars)+len(a.varFiles) > 0 {
				return errors.New("--var and --var-file speak of one cluster; name it" + a.known())
			}
			return nil
		}),
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := a.complete(castle.Options{})
			if err != nil {
				return err
			}
			report, err := castle.Check(o, args...)
			if err != nil {
				return err
			}
			return a.tellReport(report)
		},
	}
	a.valueFlags(cmd)
	return cmd
}

// tellReport prints what was found. An error among it decides the exit code.
func (a *app) tellReport(r *check.Report) error {
	var problems, warnings int
	for _, d := range r.Diagnostics {
		if d.Severity == hcl.DiagError {
			problems++
		} else {
			warnings++
		}
	}
	if a.output == "json" {
		if err := a.printJSON(checked(r)); err != nil {
			return err
		}
	} else {
		if err := a.writePlaced(r); err != nil {
			return err
		}
		if len(r.Clusters) > 0 {
			fmt.Fprintf(a.stdout, "checked %s: %s, %s\n", strings.Join(r.Clusters, ", "), count(problems, "problem"), count(warnings, "warning"))
		}
	}
	if problems > 0 {
		return exitError(castle.ExitUsage)
	}
	return nil
}

// writePlaced writes diagnostics, and one that has no place as what is wrong with the call.
func (a *app) writePlaced(r *check.Report) error {
	var placed hcl.Diagnostics
	for _, d := range r.Diagnostics {
		if d.Subject == nil {
			fmt.Fprintln(a.stderr, "castle:", strings.TrimSuffix(d.Summary+". "+d.Detail, ". "))
			continue
		}
		placed = append(placed, d)
	}
	return ui.WriteDiagnostics(a.stderr, placed, r.Files, isTerminal(a.stderr))
}

// checkedProblem is a problem as -o json has it.
type checkedProblem struct {
	Severity string `json:"severity"`       // error or warning
	Rule     string `json:"rule,omitempty"` // of docs/check.md; none: the files cannot be read or do not fit together
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail,omitempty"`
}

func checked(r *check.Report) any {
	problems := []checkedProblem{}
	for _, d := range r.Diagnostics {
		p := checkedProblem{Severity: "error", Rule: string(check.RuleOf(d)), Summary: d.Summary, Detail: d.Detail}
		if d.Severity == hcl.DiagWarning {
			p.Severity = "warning"
		}
		if d.Subject != nil {
			p.File, p.Line = d.Subject.Filename, d.Subject.Start.Line
		}
		problems = append(problems, p)
	}
	clusters := r.Clusters
	if clusters == nil {
		clusters = []string{}
	}
	return map[string]any{"clusters": clusters, "problems": problems}
}
