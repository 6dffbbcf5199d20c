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

	"github.com/siderolabs/gen/xslices"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/plan"
	"github.com/ephemeral-castle/castle/internal/operation/rollout"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newPlan(a *app) *cobra.Command {
	o, refresh, byCode := plan.Options{}, true, false
	cmd := a.valueFlags(&cobra.Command{
		Use:   "plan CLUSTER",
		Short: "Show what create would change",
		Long: `Show, per stage, the resources that create would create, change, replace and destroy,
from Terraform's own plan. The code that changed since the last apply comes first. castle
prints names and no values. It also shows refusals of preflights, imports and closed gates.
castle applies, imports and records nothing; it locks the cluster.

Of a resource that changes, the plan names the attributes (cpu.cores, values[0]); of one
that is replaced, those that force it. "drift:" precedes attributes that somebody else
has changed since the last apply, apart from those that the configuration changes. A total
follows.

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

-o markdown prints a summary for the page of a pipeline or a pull request.

The exit code is 0 whatever the plan shows, and 1 if a stage could not be planned. With
--exit-code, it is 0 only if castle has planned all stages and a create would change none.
It is 4 if a preflight would refuse a create, and else 2 if a create would change
something, or if a stage cannot be planned yet. An error of
usage or configuration is then 1, so that 2 has one meaning.`,
		Example: `  castle plan blue
  castle plan blue --only networking
  castle plan blue --exit-code           # 0 no changes, 2 changes or drift, 4 refused, 1 an error
  castle plan blue --plan-out blue.castleplan
  castle plan blue -o markdown > plan.md
  castle plan blue -o json | jq .total`,
		SuggestFor:  []string{"diff"},
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
			switch {
			case !byCode || failed != nil:
			case plan.Refused():
				failed = exitError(exitPreflight)
			case plan.Total.Changes:
				failed = exitError(exitChanges)
			}
			if a.output == "markdown" {
				return cmp.Or(printTable(a.stdout, func(w io.Writer) { printPlanMarkdown(w, plan) }), failed)
			}
			return cmp.Or(a.print(plan, func(w io.Writer) { printPlan(w, plan, a.verbose) }), failed)
		}),
	})
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().BoolVar(&refresh, "refresh", true, "look at every object that a stage owns")
	cmd.Flags().BoolVar(&o.Quick, "no-refresh", false,
		"run no Terraform for stages whose inputs, gates and revisions are unchanged")
	cmd.Flags().BoolVar(&byCode, exitCodeFlag, false,
		"exit with 2 if a create would change something, or a stage cannot be planned yet; with 4 if refused")
	cmd.Flags().StringVar(&o.Out, "plan-out", "",
		"save the plan in `FILE"+plan.Extension+"`, for create --plan; it holds secrets")
	a.lockFlag(cmd)
	return cmd
}

// exitCodeFlag has the exit code tell whether a plan has changes.
const exitCodeFlag = "exit-code"

// showsChanges reports whether the arguments ask for a plan whose exit code 2 means changes. It reads them
// itself, because cobra stops at the first error.
func showsChanges(root *cobra.Command, args []string) bool {
	cmd, rest, err := root.Find(args)
	return err == nil && cmd.Name() == "plan" &&
		(slices.Contains(rest, "--"+exitCodeFlag) || slices.Contains(rest, "--"+exitCodeFlag+"=true"))
}

// planReporter returns the reporter of a plan. Its result is no event, but problems of the configuration are.
func planReporter(a *app) func() cluster.Reporter {
	return func() cluster.Reporter {
		a.problems = a.output == "json"
		return a.progress()
	}
}

// printPlan prints changed code, then each planned stage, and the total. all adds drift that a create leaves.
func printPlan(w io.Writer, p *plan.Plan, all bool) {
	code := map[string]bool{}
	for _, c := range p.Code {
		code[c.Stage] = true
		fmt.Fprintf(w, "stage %s: code changed since castle %s applied it%s\n", c.Source, c.Castle,
			listIf(": ", c.Files))
	}
	fmt.Fprint(w, textIf(len(p.Code) > 0, "\n"))
	width := 0
	for _, s := range p.Stages {
		if s.State != review.Waits {
			width = max(width, len(s.Layer)+1+len(s.Name))
		}
	}
	for _, s := range p.Stages {
		if s.State == review.Waits { // one line below has them all
			continue
		}
		fmt.Fprintf(w, "%-*s  %s\n", width, s.Layer+"/"+s.Name, planSummary(s))
		isShown := func(part string) bool { return code[s.Name] && strings.HasPrefix(part, "module/") }
		differs := slices.DeleteFunc(slices.Clone(s.Differs), isShown)
		writeRemarks(w, listIf("note: changed since it was ready: ", differs))
		for _, line := range review.Lines(s.Changes) {
			fmt.Fprintf(w, "  %s\n", line)
		}
		for _, d := range s.DriftLeft {
			outputs := review.HasWork(s.State) && len(s.Changes) == 0 // only they change: this is why
			writeRemarks(w, textIf(all || outputs, "note: drift that a create leaves: "+d.Address+
				textIf(d.Absent, " is absent")+listIf(": ", d.Paths)))
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
	for _, m := range p.Machines {
		writeRemarks(w, "note: "+m)
	}
	writeUnknown(w, p.Unknown)
	if p.Rollout != nil {
		printNeeded(w, p.Rollout)
	}
	fmt.Fprint(w, planWaits(p, all)+planTotal(p)+planCosts(p.Costs))
	printSaved(w, p.Saved)
}

// printNeeded prints the steps that only a rollout makes, or how to list them.
func printNeeded(w io.Writer, l *rollout.List) {
	if l.Unknown != "" {
		fmt.Fprintf(w, "%s changes machines that run; its steps are unknown: %s; later: %[1]s --dry-run\n",
			l.Command, firstLine(l.Unknown))
		return
	}
	fmt.Fprintf(w, "%s changes one machine after the other:\n", l.Command)
	printRollout(w, l)
}

// planWaits names in one line all stages whose inputs are known after apply, and all or some of the outputs.
func planWaits(p *plan.Plan, all bool) string {
	var stages, outputs []string
	for _, s := range p.Stages {
		if s.State != review.Waits {
			continue
		}
		stages = append(stages, s.Layer+"/"+s.Name)
		for _, name := range s.Missing {
			if !slices.Contains(outputs, name) {
				outputs = append(outputs, name)
			}
		}
	}
	const some = 3
	if more := len(outputs) - some; more > 1 && !all {
		outputs = append(outputs[:some], fmt.Sprintf("and %d more (-v)", more))
	}
	need := "they need"
	if len(stages) == 1 {
		need = "it needs"
	}
	return textIf(len(stages) > 0, fmt.Sprintf("Not planned: %s; %s outputs that are known after apply: %s\n",
		strings.Join(stages, ", "), need, strings.Join(outputs, ", ")))
}

// planTotal is the last line of a plan.
func planTotal(p *plan.Plan) string {
	waits := len(slices.DeleteFunc(slices.Clone(p.Stages), func(s *plan.Stage) bool {
		return s.State != review.Waits
	}))
	others := len(p.Total.NotPlanned) - waits
	text := "Total: " + actions(p.Total.Counts, "create", "update", "delete") +
		fmt.Sprintf(", in %d of %s", p.Total.Changing, count(p.Total.Stages, "stage"))
	if p.Total.Changing == 0 {
		text = "Total: no changes in " + count(p.Total.Stages-len(p.Total.NotPlanned), "stage")
	}
	are := func(n int) string { return map[bool]string{true: "is", false: "are"}[n == 1] }
	return text + textIf(!p.Total.Refreshed, " (--no-refresh: only revisions are compared)") +
		textIf(waits > 0, fmt.Sprintf("; %s %s not planned yet", count(waits, "stage"), are(waits))) +
		textIf(others > 0, "; "+count(others, "stage")+" could not be planned") + ".\n"
}

// planCosts is a line with the costs of the configured machines; empty where they are not known.
func planCosts(c *platform.Costs) string {
	if c == nil {
		return ""
	}
	items := xslices.Map(c.Items, func(i platform.CostItem) string {
		return fmt.Sprintf("%d × %s %.2f", i.Count, i.What, i.Monthly)
	})
	return fmt.Sprintf("Costs: %s %.2f a month, %.4f an hour, without VAT and traffic: %s%s.\n", c.Currency,
		c.Monthly, c.Hourly, strings.Join(items, ", "), listIf("; without a price: ", c.Unpriced))
}

// printPlanMarkdown prints a title, the losses, a table of the stages, and the plan as text.
func printPlanMarkdown(w io.Writer, p *plan.Plan) {
	fmt.Fprintf(w, "### castle plan %s/%s\n\n%s\n", p.Cluster, p.Platform,
		planTotal(p)+textIf(p.Costs != nil, "\n"+planCosts(p.Costs)))
	var losses []string
	for _, s := range p.Stages {
		for _, c := range s.Changes {
			if c.Action == "replace" || c.Action == "delete" || len(c.Lost) > 0 {
				losses = append(losses, fmt.Sprintf("%s/%s %s", s.Layer, s.Name, c))
			}
		}
	}
	if len(losses) > 0 {
		fmt.Fprintf(w, "**It replaces or destroys %s:**\n\n", count(len(losses), "resource"))
		report.WriteFenced(w, strings.Join(losses, "\n")+"\n")
	}
	fmt.Fprint(w, "| stage | plan |\n| --- | --- |\n")
	for _, s := range p.Stages {
		fmt.Fprintf(w, "| %s/%s | %s |\n", s.Layer, s.Name, strings.ReplaceAll(planSummary(s), "|", `\|`))
	}
	fmt.Fprintln(w)
	var text strings.Builder
	if p.Rollout != nil {
		printNeeded(&text, p.Rollout)
		report.WriteFenced(w, text.String())
		text.Reset()
	}
	fmt.Fprint(w, "<details><summary>All changes</summary>\n\n")
	printPlan(&text, p, false)
	report.WriteFenced(w, text.String())
	fmt.Fprint(w, "</details>\n")
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
	case review.Refused:
		return "refused"
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
	return cmp.Or(actions(s.Counts), "only outputs change")
}

// actions lists how often each action is planned; those of always also if it never is.
func actions(counts map[string]int, always ...string) string {
	verbs := map[string]string{"create": "add", "update": "change", "delete": "destroy"} // Terraform's
	var parts []string
	const all = "create adopt import update replace restore delete move forget read"
	for action := range strings.FieldsSeq(all) {
		if n := counts[action]; n > 0 || slices.Contains(always, action) {
			parts = append(parts, fmt.Sprintf("%d to %s", n, cmp.Or(verbs[action], action)))
		}
	}
	return strings.Join(parts, ", ")
}
