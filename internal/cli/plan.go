package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newPlan(a *app) *cobra.Command {
	selection := castle.Selection{}
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
refused; 1 if a stage could not be planned.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(args[0], a.progress())
			if err != nil {
				return err
			}
			plan, failed := c.Plan(cmd.Context(), selection)
			if plan == nil {
				return failed
			}
			if a.output == "json" {
				err = a.printJSON(plan)
			} else {
				printPlan(a.stdout, plan)
			}
			if err != nil {
				return err
			}
			return failed
		},
	}
	selectionFlags(cmd, &selection)
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
	for _, s := range p.Unlisted {
		fmt.Fprintf(w, "%s/%s is recorded and no longer in the configuration; a create leaves it: %s\n", s.Layer, s.Stage, s.Destroy)
	}
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
