package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newStatus(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status CLUSTER",
		Short: "Show stage and gate status",
		Long: `Show whether each stage is absent, ready, stale, failed or interrupted, and check every
gate once. Exit code 0 whatever the status is.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(args[0], nil)
			if err != nil {
				return err
			}
			status, err := status.Run(cmd.Context(), c)
			if err != nil {
				return err
			}
			return a.print(status, func() error { return printStatus(a.stdout, status) })
		},
	}
	a.valueFlags(cmd)
	return cmd
}

func printStatus(w io.Writer, s status.Status) error {
	t := ui.NewTable(w)
	fmt.Fprintf(t, "layer\tstage\tstate\tgates\t\n")
	for _, st := range s.Stages {
		open := 0
		var closed []string
		for _, g := range st.Gates {
			switch {
			case g.Open:
				open++
			case !g.Recorded: // the stage's reason already shows it
				closed = append(closed, oneLine(g.Name+": "+g.Reason))
			}
		}
		gates := ""
		if len(st.Gates) > 0 {
			gates = fmt.Sprintf("%d of %d open", open, len(st.Gates))
		}
		reason := oneLine(st.Reason)
		if reason == "" && len(st.Changed) > 0 {
			reason = "changed: " + strings.Join(st.Changed, ", ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", st.Layer, st.Name, st.State, gates, reason)
		for _, c := range closed {
			fmt.Fprintf(t, "\t\t\t\t%s\n", c)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, u := range s.Unlisted {
		if _, err := fmt.Fprintln(w, u); err != nil {
			return err
		}
	}
	return nil
}
