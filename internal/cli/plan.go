package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newPlan(a *app) *cobra.Command {
	o := castle.PlanOptions{}
	cmd := &cobra.Command{
		Use:   "plan CLUSTER",
		Short: "Say what a create would do, and change nothing",
		Long: `Say of each stage what a create would make, change, replace and destroy, by
Terraform's own plan, after what its code has changed since it was applied. Names
only: no values. A stage whose inputs no earlier stage has said yet is not planned,
and neither is what belongs into a cluster that does not answer. What preflights
would refuse, what would be adopted or taken over, and closed gates are told, too.
Nothing is applied, imported or recorded, and no state changes; the cluster is
locked meanwhile. Exit code 0 whatever there is to do, and whatever would be
refused; 1 if a stage could not be planned.

--plan-out saves the plan, for review and for ` + "`castle create --plan`" + `, which applies
exactly it, or nothing if anything has moved since. The file holds every value in
clear, secrets too: it is readable by its owner alone, has to be called
*` + castle.PlanExtension + `, and may lie in the castle repository only where .gitignore
keeps it out of Git. It fits this state directory and this castle, on any machine
that has both.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(args[0], a.progress())
			if err != nil {
				return err
			}
			if err := a.mayKeep(o.Out); err != nil {
				return err
			}
			plan, failed := c.Plan(cmd.Context(), o)
			if plan == nil {
				return failed
			}
			if a.output == "json" {
				err = a.printJSON(plan)
			} else {
				printPlan(a.stdout, plan)
				printSaved(a.stdout, plan)
			}
			if err != nil {
				return err
			}
			return failed
		},
	}
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().StringVar(&o.Out, "plan-out", "", "save the plan in `FILE"+castle.PlanExtension+"`, for create --plan; it holds secrets")
	a.valueFlags(cmd)
	return cmd
}

// printPlan writes a plan for people: changed code first, then each stage.
func printPlan(w io.Writer, p *castle.Plan) {
	code := map[string]bool{}
	for _, c := range p.Code {
		code[c.Stage] = true
		files := ""
		if len(c.Files) > 0 {
			files = ": " + strings.Join(c.Files, ", ")
		}
		fmt.Fprintf(w, "stage %s: its code changed since castle %s applied it%s\n", c.Source, c.Castle, files)
	}
	if len(p.Code) > 0 {
		fmt.Fprintln(w)
	}
	wide := 0
	for _, s := range p.Stages {
		wide = max(wide, len(s.Layer)+1+len(s.Name))
	}
	for _, s := range p.Stages {
		fmt.Fprintf(w, "%-*s  %s\n", wide, s.Layer+"/"+s.Name, verdict(s))
		told := func(part string) bool { return code[s.Name] && strings.HasPrefix(part, "module/") }
		if differs := slices.DeleteFunc(slices.Clone(s.Differs), told); len(differs) > 0 {
			remark(w, "changed since it was ready: "+strings.Join(differs, ", "))
		}
		for _, c := range s.Changes {
			fmt.Fprintf(w, "  %s\n", c)
		}
		for _, refused := range s.Refused {
			remark(w, "create would be refused: "+refused)
		}
		for _, text := range s.Notes {
			remark(w, text)
		}
		if len(s.OnEarlier) > 0 {
			remark(w, fmt.Sprintf("judged by what %s says now, which changes first", strings.Join(s.OnEarlier, ", ")))
		}
	}
	for _, u := range p.Unlisted {
		fmt.Fprintln(w, u)
	}
}

// printSaved says where a plan was saved, and what is still open in it.
func printSaved(w io.Writer, p *castle.Plan) {
	s := p.Saved
	if s == nil {
		return
	}
	fmt.Fprintf(w, "\nsaved in %s (sha256 %s); it holds secrets in clear. Apply exactly it:\n  %s\n", s.Path, s.SHA256, s.Apply)
	if len(s.Unplanned) > 0 {
		fmt.Fprintf(w, "warning: not in it: %s. Each is planned then, and applied if it changes nothing that exists, or with --yes\n", strings.Join(s.Unplanned, ", "))
	}
	if len(s.Imports) > 0 {
		fmt.Fprintf(w, "warning: imports come first: %s. Each is planned anew then, and applied if it does no more than is listed above\n", strings.Join(s.Imports, ", "))
	}
}

// mayKeep refuses a name by which a saved plan could get into Git.
func (a *app) mayKeep(path string) error {
	if path == "" {
		return nil
	}
	refused := func(format string, args ...any) error {
		return &castle.UsageError{Message: "--plan-out " + path + ": " + fmt.Sprintf(format, args...)}
	}
	if !strings.HasSuffix(path, castle.PlanExtension) {
		return refused("it will hold secrets, so call it %s%s, which .gitignore keeps out of Git", path, castle.PlanExtension)
	}
	repository, err := config.FindRepository(a.directory)
	if err != nil {
		return err
	}
	inside, err := lies(repository, path)
	if err != nil {
		return refused("%v", err) // before anything is planned
	}
	if !inside {
		return nil
	}
	lines, err := scaffold.Unignored(repository)
	if err == nil && slices.Contains(lines, "*"+castle.PlanExtension+"*") {
		return refused("it will hold secrets, and the repository's .gitignore lacks *%s*: add that (`castle init`), or save it outside of %s", castle.PlanExtension, repository)
	}
	return err
}

// lies reports whether a file would be below a folder, whatever links lead there.
func lies(folder, file string) (bool, error) {
	real, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return false, err
	}
	if real, err = filepath.EvalSymlinks(real); err != nil {
		return false, err
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return false, err
	}
	in, err := filepath.Rel(folder, real)
	return err == nil && filepath.IsLocal(in), nil
}

// remark writes a remark on a stage.
func remark(w io.Writer, text string) {
	fmt.Fprintf(w, "  note: %s\n", strings.ReplaceAll(text, "\n", "\n    "))
}

// verdict is a stage's plan in a line.
func verdict(s castle.StagePlan) string {
	switch s.State {
	case castle.PlanCurrent:
		return "current: nothing to do"
	case castle.PlanUnchanged:
		return "Terraform would change nothing"
	case castle.PlanWaits:
		return "its inputs do not exist yet: " + strings.Join(s.Missing, ", ")
	case castle.PlanUnreachable:
		return "the cluster does not answer: " + firstLine(s.Reason)
	case castle.PlanFailed:
		return "cannot be planned: " + firstLine(s.Reason)
	}
	var parts []string
	for _, a := range actions() {
		if n := s.Counts[a.name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, a.verb))
		}
	}
	if len(parts) == 0 {
		return "only outputs change"
	}
	return strings.Join(parts, ", ")
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// action is what becomes of a resource, and how that is counted.
type action struct{ name, verb string }

func actions() []action {
	return []action{
		{"create", "create"},
		{"adopt", "adopt"},
		{"import", "import"},
		{"update", "change"},
		{"replace", "replace"},
		{"delete", "destroy"},
		{"move", "move"},
		{"forget", "forget"},
		{"read", "read"},
	}
}
