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
	o := plan.Options{}
	cmd := a.valueFlags(&cobra.Command{
		Use:   "plan CLUSTER",
		Short: "Show what create would change",
		Long: `Show, per stage, the resources that create would create, change, replace and destroy,
from Terraform's own plan, and first the code that changed since the last apply. Names
only, no values. castle cannot plan a stage whose inputs are known after apply, nor
resources in a cluster that does not answer. The plan also shows refusals of
preflights, imports and closed gates. castle applies, imports and records nothing;
it locks the cluster. Exit code 0 whatever the plan shows, 1 if a stage could not
be planned.

--plan-out saves the plan for review and for ` + "`castle create --plan`" + `, which applies exactly
this plan, or nothing if anything has changed since. The file holds every value in
clear text, secrets included: only its owner can read it, its name must be
*` + plan.Extension + `, and it may lie in the castle repository only where .gitignore excludes it.
It is valid for this state directory and this version of castle, on any machine.`,
		Args: a.oneCluster(),
		RunE: a.onCluster(a.progress, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			if o.Out != "" {
				if err := checkPlanPath(c.Options.Repository, o.Out); err != nil {
					return refuse("--plan-out %s: %v", o.Out, err)
				}
			}
			plan, failed := plan.Run(ctx, c, o)
			if plan == nil {
				return failed
			}
			return cmp.Or(a.print(plan, func(w io.Writer) { printPlan(w, plan) }), failed)
		}),
	})
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().StringVar(&o.Out, "plan-out", "",
		"save the plan in `FILE"+plan.Extension+"`, for create --plan; it holds secrets")
	return cmd
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
	printSaved(w, p.Saved)
}

// printSaved shows where a plan was saved, and which stages it does not cover.
func printSaved(w io.Writer, s *plan.SavedPlan) {
	if s == nil {
		return
	}
	fmt.Fprintf(w, "\nsaved in %s (sha256 %s); it holds secrets in clear text. "+
		"To apply exactly this plan:\n  %s\n", s.Path, s.SHA256, s.Apply)
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
	case review.Waits:
		return "known after apply: " + strings.Join(s.Missing, ", ")
	case review.Unreachable:
		return "the cluster does not answer: " + firstLine(s.Reason)
	case review.Failed:
		return "cannot be planned: " + firstLine(s.Reason)
	}
	verbs := map[string]string{"update": "change", "delete": "destroy"} // others are called by their action
	var parts []string
	for _, action := range strings.Fields("create adopt import update replace delete move forget read") {
		if n := s.Counts[action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, cmp.Or(verbs[action], action)))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "only outputs change")
}
