package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/foreign"
	explanation "github.com/ephemeral-castle/castle/internal/operation/explain"
	"github.com/ephemeral-castle/castle/internal/outdated"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newCheck(a *app) *cobra.Command {
	explained, online := "", false
	cmd := a.valueFlags(&cobra.Command{
		Use:   "check [CLUSTER]",
		Short: "Validate the configuration offline",
		Long: `Validate the configuration of a cluster, or of every cluster of the repository,
and report all problems at once, each with file, line and remedy: files, graph,
references and types; addresses, networks, names and VM ids, also those of other
clusters; the Talos machine configuration, rendered and validated as Talos does;
incompatible versions; secrets in files for Git; file modes. castle runs nothing
and contacts nothing. docs/check.md lists the rules. Warnings do not change the
exit code.

With --online, castle also asks the repositories of charts for the pinned versions;
one that does not answer is no problem.

With --explain, castle says where the value of a variable comes from: each place that
sets it, the strongest first, which stages use it, and what each stage gets. It hides
the values of secrets.`,
		Example: `  castle check blue
  castle check
  castle check --online
  castle check blue --explain metallb_chart_version
  castle check blue -o json`,
		SuggestFor: []string{"validate", "lint"},
		Args:       a.optionalCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.complete(cluster.Options{})
			if err != nil {
				return err
			}
			if explained != "" {
				result, err := explanation.Run(o, explained, args)
				if err != nil {
					return err
				}
				return printExplanation(a, explained, result)
			}
			report, err := cluster.Check(o, args...)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				checkFleet(o.Repository, report)
			}
			if online {
				checkCharts(cmd.Context(), o, report)
			}
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			return printCheck(a, report)
		},
	})
	cmd.Flags().BoolVar(&online, "online", false, "ask the repositories of charts for the versions, too")
	cmd.Flags().StringVar(&explained, "explain", "", "say where the value of the variable `NAME` comes from")
	cmd.MarkFlagsMutuallyExclusive("online", "explain")
	return cmd
}

// checkCharts adds the charts whose repositories answer, and do not have the version. A cluster that cannot
// be loaded has problems already.
func checkCharts(ctx context.Context, o cluster.Options, r *check.Report) {
	var clusters []*config.Cluster
	for _, o.Cluster = range r.Clusters {
		if c, err := o.Load(); err == nil {
			clusters = append(clusters, c)
		}
	}
	for _, i := range outdated.Charts(ctx, nil, clusters...) {
		if i.Status == outdated.Missing {
			r.Diagnostics = append(r.Diagnostics, syntax.Problem(i.At,
				fmt.Sprintf("no version %s of the chart %s", i.Pinned, i.Name),
				"%s does not have it. Choose one that it has: castle outdated %s lists newer ones.",
				foreign.OneLine(i.Source), path.Dir(strings.TrimPrefix(i.At.Filename, "clusters/"))))
		}
	}
}

// checkFleet adds the problems of fleet.hcl. Those of labels are problems of their cluster already.
func checkFleet(repository string, r *check.Report) {
	f, diags := fleet.Load(repository)
	for _, d := range diags {
		if d.Subject != nil && d.Subject.Filename == fleet.File {
			r.Diagnostics = append(r.Diagnostics, d)
			r.Files[fleet.File] = f.Files[fleet.File]
		}
	}
}

// printExplanation prints where the value of a variable comes from. An error of the configuration decides the
// exit code, as without --explain.
func printExplanation(a *app, name string, r *explanation.Result) error {
	if len(r.Variables) == 0 && !r.Diagnostics.HasErrors() {
		return refuse("variable %q: no stage declares it, and nothing sets it%s", name,
			nearestName(name, r.Known))
	}
	err := a.print(map[string]any{"variables": append([]*explanation.Variable{}, r.Variables...)},
		func(w io.Writer) {
			for i, v := range r.Variables {
				fmt.Fprintf(w, "%s%s of %s%s\n", textIf(i > 0, "\n"), v.Name, v.Cluster,
					textIf(v.Sensitive, " (a secret, which castle does not show)"))
				printVariable(w, v)
			}
		})
	if err == nil && r.Diagnostics.HasErrors() {
		return &cluster.ConfigError{Diagnostics: r.Diagnostics, Files: r.Files}
	}
	return err
}

// mostExplained is how much of a value a line shows.
const mostExplained = 60

func printVariable(w io.Writer, v *explanation.Variable) {
	short := func(text string) string {
		if cut := []rune(foreign.OneLine(text)); len(cut) > mostExplained {
			return string(cut[:mostExplained-1]) + "…"
		}
		return cmp.Or(foreign.OneLine(text), "-")
	}
	for _, p := range v.Places {
		fmt.Fprintf(w, "  %s\t%s\t%s%s\n", p.At(), short(cmp.Or(p.Value, p.Expression)),
			textIf(p.Default, "default, "),
			cmp.Or(textIf(len(p.Stages) > 0, "used by "+strings.Join(p.Stages, ", ")), "not used"))
	}
	for _, s := range v.Stages {
		got := cmp.Or(textIf(s.Value != "", short(s.Value)), textIf(v.Sensitive, "the value"),
			"what a run knows")
		if s.From == "" {
			got, s.From = "nothing", "any place, and requires a value"
		}
		fmt.Fprintf(w, "  stage %s gets %s from %s\n", s.Name, got, s.From)
	}
	if len(v.Stages) == 0 {
		fmt.Fprintln(w, "  no stage of the cluster declares it")
	}
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
