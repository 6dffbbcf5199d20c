package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/plan"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newPlan(a *app) *cobra.Command {
	o, refresh := plan.Options{}, true
	cmd := a.valueFlags(&cobra.Command{
		Use:   "plan CLUSTER",
		Short: "Show what create would change",
		Long: `Show, per stage, the resources that create would create, change, replace and destroy,
from Terraform's own plan, and first the code that changed since the last apply. Names
only, no values. The plan also shows refusals of preflights, imports and closed gates.
castle applies, imports and records nothing; it locks the cluster. Exit code 0 whatever
the plan shows, 1 if a stage could not be planned.

castle looks at every object that a stage owns, also where the inputs are unchanged:
with Terraform's refresh, and at the objects of Helm releases in the cluster. A stage is
up to date if nothing differs, and drifted if an object is absent or was changed since the
last apply. It is unknown if castle could not look, for example into a cluster that does
not answer. castle cannot plan a stage whose inputs are known after apply. --no-refresh
is quick: where the inputs are unchanged and the gates are open, castle compares only the
revisions of the objects.

--plan-out saves the plan for review and for ` + "`castle create --plan`" + `, which applies exactly
this plan, or nothing if anything has changed since. The file holds every value, secrets
included. If castle.hcl encrypts the states in a store, castle encrypts the file, too; if
not, only its owner can read it. Its name must be *` + plan.Extension + `, and it may lie in the
castle repository only where .gitignore excludes it.
It is valid for this state directory and this version of castle, on any machine.

-o markdown prints a summary for the page of a pipeline or a pull request.`,
		Args:        a.oneCluster(),
		Annotations: map[string]string{formatsKey: "text json markdown"},
		RunE: a.onCluster(planReporter(a), func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			if o.Out != "" {
				if err := checkPlanPath(c.Options.Repository, o.Out); err != nil {
					return refuse("--plan-out %s: %v", o.Out, err)
				}
			}
			o.Quick = o.Quick || !refresh
			plan, failed := plan.Run(ctx, c, o)
			if plan == nil {
				return failed
			}
			if a.output == "markdown" {
				return cmp.Or(printTable(a.stdout, func(w io.Writer) { printPlanMarkdown(w, plan) }), failed)
			}
			return cmp.Or(a.print(plan, func(w io.Writer) { printPlan(w, plan) }), failed)
		}),
	})
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().BoolVar(&refresh, "refresh", true, "look at every object that a stage owns")
	cmd.Flags().BoolVar(&o.Quick, "no-refresh", false,
		"run no Terraform for stages whose inputs, gates and revisions are unchanged")
	cmd.Flags().StringVar(&o.Out, "plan-out", "",
		"save the plan in `FILE"+plan.Extension+"`, for create --plan; it holds secrets")
	a.lockFlag(cmd)
	return cmd
}

// planReporter returns the reporter of a plan. Its result is no event, but problems of the configuration are.
func planReporter(a *app) func() cluster.Reporter {
	return func() cluster.Reporter {
		a.problems = a.output == "json"
		return a.progress()
	}
}

// printPlan prints changed code first, then each stage.
func printPlan(w io.Writer, p *plan.Plan) {
	code := map[string]bool{}
	for _, c := range p.Code {
		code[c.Stage] = true
		fmt.Fprintf(w, "stage %s: code changed since castle %s applied it%s\n", c.Source, c.Castle,
			listIf(": ", c.Files))
	}
	fmt.Fprint(w, textIf(len(p.Code) > 0, "\n"))
	width := 0
	for _, s := range p.Stages {
		width = max(width, len(s.Layer)+1+len(s.Name))
	}
	for _, s := range p.Stages {
		fmt.Fprintf(w, "%-*s  %s\n", width, s.Layer+"/"+s.Name, planSummary(s))
		isShown := func(part string) bool { return code[s.Name] && strings.HasPrefix(part, "module/") }
		differs := slices.DeleteFunc(slices.Clone(s.Differs), isShown)
		writeRemarks(w, listIf("note: changed since it was ready: ", differs))
		for _, c := range s.Changes {
			fmt.Fprintf(w, "  %s\n", c)
		}
		for _, refused := range s.Refused {
			writeRemarks(w, "note: create would be refused: "+refused)
		}
		for _, text := range s.Notes {
			writeRemarks(w, "note: "+text)
		}
		earlier := listIf("note: planned with the present outputs of ", s.OnEarlier)
		writeRemarks(w, textIf(earlier != "", earlier+", which changes first"))
	}
	for _, u := range p.Unlisted {
		fmt.Fprintln(w, u)
	}
	writeUnknown(w, p.Unknown)
	printSaved(w, p.Saved)
}

// printPlanMarkdown prints a title, the losses, a table of the stages, and the plan as text.
func printPlanMarkdown(w io.Writer, p *plan.Plan) {
	fmt.Fprintf(w, "### castle plan %s/%s\n\n", p.Cluster, p.Platform)
	var losses []string
	for _, s := range p.Stages {
		for _, c := range s.Changes {
			if c.Action == "replace" || c.Action == "delete" {
				losses = append(losses, fmt.Sprintf("%s/%s %s", s.Layer, s.Name, c))
			}
		}
	}
	if len(losses) > 0 {
		fmt.Fprintf(w, "**It replaces or destroys %s:**\n\n", count(len(losses), "resource"))
		writeFenced(w, strings.Join(losses, "\n")+"\n")
	}
	fmt.Fprint(w, "| stage | plan |\n| --- | --- |\n")
	for _, s := range p.Stages {
		fmt.Fprintf(w, "| %s/%s | %s |\n", s.Layer, s.Name, strings.ReplaceAll(planSummary(s), "|", `\|`))
	}
	fmt.Fprint(w, "\n<details><summary>All changes</summary>\n\n")
	var text strings.Builder
	printPlan(&text, p)
	writeFenced(w, text.String())
	fmt.Fprint(w, "</details>\n")
}

// writeFenced writes a text as a block of code, whose fence is longer than any in the text.
func writeFenced(w io.Writer, text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	fmt.Fprintf(w, "%stext\n%s%[1]s\n\n", fence, text)
}

// printSaved shows where a plan was saved, and which stages it does not cover.
func printSaved(w io.Writer, s *plan.SavedPlan) {
	if s == nil {
		return
	}
	secrets := "it holds secrets in clear text"
	if s.Encrypted {
		secrets = "it is encrypted for the recipients in castle.hcl"
	}
	fmt.Fprintf(w, "\nsaved in %s (sha256 %s); %s. To apply exactly this plan:\n  %s\n", s.Path, s.SHA256,
		secrets, s.Apply)
	if len(s.Unplanned) > 0 {
		fmt.Fprintf(w, "warning: not in the plan: %s. Create plans each in its turn and applies it "+
			"if it changes no existing resource, or with --yes\n", strings.Join(s.Unplanned, ", "))
	}
	if len(s.Imports) > 0 {
		fmt.Fprintf(w, "warning: imports come first: %s. Create then plans each again and applies it "+
			"if it does no more than listed above\n", strings.Join(s.Imports, ", "))
	}
}

// checkPlanPath refuses a path under which a saved plan could get into Git.
func checkPlanPath(repository, path string) error {
	if !strings.HasSuffix(path, plan.Extension) {
		return fmt.Errorf("the plan holds secrets; name it %s%s, which .gitignore excludes from Git", path,
			plan.Extension)
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	folder, err1 := filepath.EvalSymlinks(folder)
	root, err2 := filepath.EvalSymlinks(repository)
	if err := errors.Join(err1, err2); err != nil {
		return err // before anything is planned
	}
	if in, err := filepath.Rel(root, folder); err != nil || !filepath.IsLocal(in) {
		return nil
	}
	lines, err := scaffold.Unignored(repository)
	if err == nil && slices.Contains(lines, "*"+plan.Extension+"*") {
		return fmt.Errorf("the plan holds secrets, and the repository's .gitignore lacks *%s*: "+
			"add it (`castle init`), or save the plan outside of %s", plan.Extension, repository)
	}
	return err
}

// planSummary summarizes a stage's plan in a line.
func planSummary(s *plan.Stage) string {
	switch s.State {
	case review.UpToDate:
		return "up to date"
	case review.Unchanged:
		return "no changes"
	case review.Drifted:
		return "drifted: " + changeCounts(s)
	case review.Waits:
		return "known after apply: " + strings.Join(s.Missing, ", ")
	case review.Unknown:
		return "unknown: " + firstLine(s.Reason)
	case review.Unreachable:
		return "unknown: the cluster does not answer: " + firstLine(s.Reason)
	case review.Failed:
		return "cannot be planned: " + firstLine(s.Reason)
	}
	return changeCounts(s)
}

func changeCounts(s *plan.Stage) string {
	verbs := map[string]string{"update": "change", "delete": "destroy"} // others are called by their action
	var parts []string
	const actions = "create adopt import update replace restore delete move forget read"
	for _, action := range strings.Fields(actions) {
		if n := s.Counts[action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, cmp.Or(verbs[action], action)))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "only outputs change")
}
