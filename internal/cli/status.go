package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/status"
)

func newStatus(a *app) *cobra.Command {
	exitCode := false
	cmd := a.valueFlags(&cobra.Command{
		Use:   "status CLUSTER",
		Short: "Show stage and gate status",
		Long: `Show whether each stage is absent, ready, stale, failed, skipped or interrupted, and check
every gate once. Exit code 0 whatever the status is.

With --exit-code: 0 if every stage is ready, 5 if a gate is closed, 1 if a stage failed or is
not ready for another reason.`,
		Args: a.oneCluster(),
		RunE: a.onCluster(nil, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			s, err := status.Run(ctx, c)
			if err != nil {
				return err
			}
			for _, text := range s.Damaged {
				fmt.Fprintln(a.stderr, "castle:", text)
			}
			err = a.print(s, func(w io.Writer) { printStatus(w, s) })
			switch {
			case err != nil || !exitCode || s.AllReady():
				return err
			case s.OnlyGates():
				return exitError(exitGate)
			}
			return exitError(exitFailed)
		}),
	})
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 or 5 unless every stage is ready")
	return cmd
}

func printStatus(w io.Writer, s status.Status) {
	fmt.Fprintf(w, "layer\tstage\tstate\tgates\t\n")
	for _, st := range s.Stages {
		open, closed := 0, ""
		for _, g := range st.Gates {
			switch {
			case g.Open:
				open++
			case !g.Recorded: // the stage's reason already shows it
				closed += fmt.Sprintf("\t\t\t\t%s\n", oneLine(g.Name+": "+g.Reason))
			}
		}
		gates := textIf(len(st.Gates) > 0, fmt.Sprintf("%d of %d open", open, len(st.Gates)))
		reason := cmp.Or(oneLine(st.Reason), listIf("changed: ", st.Changed))
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n%s", st.Layer, st.Name, st.State, gates, reason, closed)
	}
	for _, u := range s.Unlisted {
		fmt.Fprintln(w, u)
	}
}
