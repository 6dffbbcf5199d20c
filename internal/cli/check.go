package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/doctor"
	"github.com/ephemeral-castle/castle/internal/operation/status"
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
		Args: a.optionalCluster(),
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
		if _, err := ui.WriteDiagnostics(a.stderr, r.Diagnostics, r.Files, isTerminal(a.stderr)); err != nil {
			return err
		}
	}
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

func newDoctor(a *app) *cobra.Command {
	return a.valueFlags(&cobra.Command{
		Use:   "doctor [CLUSTER]",
		Short: "Check prerequisites",
		Long: `Check everything that a create relies on, and change nothing: Terraform and its
providers, the state directory; Infisical or Vault with the folder and the secrets
that stages read; Proxmox with its certificate, API token and privileges, nodes,
storages, image and VM ids; the Git repository; free addresses, host names, clocks.
Without CLUSTER: this machine only.

A finding is green; yellow, a warning; red, a problem that would stop a create; or
grey, not checked, with the reason. Yellow and red findings name the fix. castle reads
secret values into memory only, and never shows them.

Exit code 0 if nothing is red, 1 if something is, 2 if the configuration cannot be
read (castle check lists its problems).`,
		Args: a.optionalCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Without a cluster no repository is needed.
			o := cluster.Options{Cluster: strings.Join(args, ""), Recorded: len(args) == 0}
			o, err := a.complete(o)
			if err != nil {
				return err
			}
			lab, err := findLab()
			if err != nil && !is[*cluster.UsageError](err) {
				return err
			}
			report, err := status.Doctor(cmd.Context(), o, lab)
			if err != nil {
				return err
			}
			err = a.print(report, func(w io.Writer) { printReport(w, report, isTerminal(a.stdout)) })
			if err == nil && !report.Healthy {
				return exitError(exitFailed)
			}
			return err
		},
	})
}

// printReport writes a line for each finding, and its fix below it.
func printReport(w io.Writer, r *doctor.Report, terminal bool) {
	codes := map[doctor.Colour]string{doctor.Green: "32", doctor.Yellow: "33", doctor.Red: "31",
		doctor.Grey: "2"}
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Name))
	}
	for _, f := range r.Findings {
		colour := fmt.Sprintf("%-6s", f.Colour)
		if terminal {
			colour = "\x1b[" + codes[f.Colour] + "m" + colour + "\x1b[0m"
		}
		fmt.Fprintf(w, "%s  %-*s  %s\n", colour, width, f.Name, f.Text)
		if f.Fix != "" {
			fmt.Fprintf(w, "%*s  fix: %s\n", len("yellow  ")+width, "", f.Fix)
		}
	}
}
