package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

// stateDetails is `castle state show` as JSON.
type stateDetails struct {
	Cluster  string              `json:"cluster"`
	Platform string              `json:"platform"`
	Stages   []castle.StageState `json:"stages"`
}

func newStateShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show CLUSTER [STAGE]",
		Short: "Show which resources a state knows, and its snapshots",
		Long: `Show the addresses of the resources that a stage's state knows, and its snapshots
with their serials and times, the newest first. No values. STAGE may be a layer.`,
		Args: a.clusterAndStage(),
		RunE: func(_ *cobra.Command, args []string) error {
			c, states, err := a.states(args)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(stateDetails{Cluster: c.Cluster().Name, Platform: c.Cluster().Platform, Stages: states})
			}
			t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, s := range states {
				showState(t, s)
			}
			return t.Flush()
		},
	}
}

func showState(t *tabwriter.Writer, s castle.StageState) {
	fmt.Fprintf(t, "%s/%s: serial %s, lineage %s\n", s.Layer, s.Name, serial(s.Serial), orDash(s.Lineage))
	if s.Problem != "" {
		fmt.Fprintf(t, "  %s\n", strings.ReplaceAll(s.Problem, "\n", "\n  "))
	}
	for _, res := range s.Resources {
		note := ""
		switch {
		case res.Deposed:
			note = "deposed: replaced, not yet deleted"
		case res.Tainted:
			note = "tainted: not wholly made"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", res.Address, res.Provider, note)
	}
	for _, snap := range s.Snapshots {
		what := snap.Problem
		if what == "" {
			what = fmt.Sprintf("serial %d\t%s", snap.Serial, count(snap.Resources, "resource"))
		}
		fmt.Fprintf(t, "  snapshot %s\t%s\t%s\n", snap.Name, moment(snap.Taken), what)
	}
}
