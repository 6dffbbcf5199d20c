package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/operation/plan"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newPlan(a *app) *cobra.Command {
	o := plan.Options{}
	cmd := &cobra.Command{
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
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(args[0], a.progress())
			if err != nil {
				return err
			}
			if err := checkPlanPath(a.directory, o.Out); err != nil {
				return err
			}
			plan, failed := plan.Run(cmd.Context(), c, o)
			if plan == nil {
				return failed
			}
			err = a.print(plan, func() error {
				printPlan(a.stdout, plan)
				printSaved(a.stdout, plan.Saved)
				return nil
			})
			if err != nil {
				return err
			}
			return failed
		},
	}
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().StringVar(&o.Out, "plan-out", "",
		"save the plan in `FILE"+plan.Extension+"`, for create --plan; it holds secrets")
	a.valueFlags(cmd)
	return cmd
}

// printPlan prints changed code first, then each stage.
func printPlan(w io.Writer, p *plan.Plan) {
	code := map[string]bool{}
	for _, c := range p.Code {
		code[c.Stage] = true
		files := ""
		if len(c.Files) > 0 {
			files = ": " + strings.Join(c.Files, ", ")
		}
		fmt.Fprintf(w, "stage %s: code changed since castle %s applied it%s\n", c.Source, c.Castle, files)
	}
	if len(p.Code) > 0 {
		fmt.Fprintln(w)
	}
	width := 0
	for _, s := range p.Stages {
		width = max(width, len(s.Layer)+1+len(s.Name))
	}
	for _, s := range p.Stages {
		fmt.Fprintf(w, "%-*s  %s\n", width, s.Layer+"/"+s.Name, planSummary(s))
		isShown := func(part string) bool { return code[s.Name] && strings.HasPrefix(part, "module/") }
		if differs := slices.DeleteFunc(slices.Clone(s.Differs), isShown); len(differs) > 0 {
			printNote(w, "changed since it was ready: "+strings.Join(differs, ", "))
		}
		for _, c := range s.Changes {
			fmt.Fprintf(w, "  %s\n", c)
		}
		for _, refused := range s.Refused {
			printNote(w, "create would be refused: "+refused)
		}
		for _, text := range s.Notes {
			printNote(w, text)
		}
		if len(s.OnEarlier) > 0 {
			printNote(w, fmt.Sprintf("planned with the present outputs of %s, which changes first",
				strings.Join(s.OnEarlier, ", ")))
		}
	}
	for _, u := range p.Unlisted {
		fmt.Fprintln(w, u)
	}
}

func printNote(w io.Writer, text string) {
	fmt.Fprintf(w, "  note: %s\n", strings.ReplaceAll(text, "\n", "\n    "))
}

// printSaved shows where a plan was saved, and which stages it does not cover.
func printSaved(w io.Writer, s *plan.SavedPlan) {
	if s == nil {
		return
	}
	fmt.Fprintf(w, "\nsaved in %s (sha256 %s); it holds secrets in clear text. "+
		"To apply exactly this plan:\n  %s\n",
		s.Path, s.SHA256, s.Apply)
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
func checkPlanPath(directory, path string) error {
	if path == "" {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return &cluster.UsageError{Message: "--plan-out " + path + ": " + fmt.Sprintf(format, args...)}
	}
	if !strings.HasSuffix(path, plan.Extension) {
		return refuse("the plan holds secrets; name it %s%s, which .gitignore excludes from Git", path,
			plan.Extension)
	}
	repository, err := config.FindRepository(directory)
	if err != nil {
		return err
	}
	inside, err := isBelow(repository, path)
	if err != nil {
		return refuse("%v", err) // before anything is planned
	}
	if !inside {
		return nil
	}
	lines, err := scaffold.Unignored(repository)
	if err == nil && slices.Contains(lines, "*"+plan.Extension+"*") {
		return refuse("the plan holds secrets, and the repository's .gitignore lacks *%s*: "+
			"add it (`castle init`), or save the plan outside of %s", plan.Extension, repository)
	}
	return err
}

// isBelow reports whether a file would be below a folder, links resolved.
func isBelow(folder, file string) (bool, error) {
	abs, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return false, err
	}
	real, err1 := filepath.EvalSymlinks(abs)
	folder, err2 := filepath.EvalSymlinks(folder)
	if err := errors.Join(err1, err2); err != nil {
		return false, err
	}
	in, err := filepath.Rel(folder, real)
	return err == nil && filepath.IsLocal(in), nil
}

// planSummary summarizes a stage's plan in a line.
func planSummary(s plan.Stage) string {
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
	var parts []string
	for _, x := range [][2]string{
		{"create", "create"}, {"adopt", "adopt"}, {"import", "import"}, {"update", "change"},
		{"replace", "replace"},
		{"delete", "destroy"}, {"move", "move"}, {"forget", "forget"}, {"read", "read"},
	} {
		if n := s.Counts[x[0]]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, x[1]))
		}
	}
	if len(parts) == 0 {
		return "only outputs change"
	}
	return strings.Join(parts, ", ")
}
