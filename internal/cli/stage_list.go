package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/config"
)

func newStageList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the stages there are",
		Long: `List the stages that castle brings and those of the repository, by layer, with
what each is for. Marked are those that the repository adds, and those with which
it shadows an embedded one. Outside a repository, what castle brings.`,
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			all, err := a.library()
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(map[string]any{"stages": all})
			}
			t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(t, "stage\tfrom\t\n")
			for _, s := range all {
				fmt.Fprintf(t, "%s\t%s\t%s\n", s.Source, whence(s), s.Summary)
			}
			if err := t.Flush(); err != nil {
				return err
			}
			for _, s := range all {
				if s.Problems.HasErrors() {
					fmt.Fprintf(a.stderr, "castle: %s cannot be used; `castle stage show %s` says why\n", s.Source, s.Source)
				}
			}
			return nil
		},
	}
}

// whence says where a stage comes from.
func whence(s *config.LibraryStage) string {
	switch {
	case s.Shadows:
		return "repository, shadows castle's"
	case s.Origin != "embedded":
		return "repository"
	}
	return "castle"
}
