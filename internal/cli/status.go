package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/plan"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
)

func newStatus(a *app) *cobra.Command {
	exitCode, refresh := false, false
	cmd := a.valueFlags(&cobra.Command{
		Use:   "status CLUSTER",
		Short: "Show stage and gate status",
		Long: `Show whether each stage is absent, ready, up to date, stale, drifted, unknown, failed, skipped
or interrupted, and check every gate once. Exit code 0 whatever the status is.

A stage is ready if its gates are open and nothing is known to differ. It is stale if its inputs
have changed since the last apply, and drifted if they have not, but an object that it owns is
absent or changed. It is unknown if castle could not look. castle compares the revisions of the
objects that it can list. --refresh looks at all of them, as castle plan does: then a stage without
a difference is up to date. It runs Terraform and locks the cluster.

With --exit-code: 0 if every stage is ready or up to date, 5 if a gate is closed, 1 if a stage
failed, is drifted or unknown, or is not ready for another reason.`,
		Args: a.oneCluster(),
		RunE: a.onCluster(nil, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			var looks map[string]review.Look
			if refresh {
				found, err := plan.Run(ctx, c, plan.Options{})
				if found == nil {
					return err
				}
				looks = found.Looks()
			}
			s, err := status.Run(ctx, c, looks)
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
	cmd.Flags().BoolVar(&refresh, "refresh", false, "look at every object that a stage owns")
	return cmd
}

func printStatus(w io.Writer, s status.Status) {
	fmt.Fprintf(w, "layer\tstage\tstate\tgates\t\n")
	for _, st := range s.Stages {
		open, below := 0, ""
		for _, g := range st.Gates {
			switch {
			case g.Open:
				open++
			case !g.Recorded: // the stage's reason already shows it
				below += fmt.Sprintf("\t\t\t\t%s\n", oneLine(g.Name+": "+g.Reason))
			}
		}
		gates := textIf(len(st.Gates) > 0, fmt.Sprintf("%d of %d open", open, len(st.Gates)))
		reason := cmp.Or(oneLine(st.Reason), listIf("changed: ", st.Changed))
		for _, d := range st.Drifted {
			below += fmt.Sprintf("\t\t\t\t%s\n", oneLine(d.String()))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n%s", st.Layer, st.Name, st.State, gates, reason, below)
	}
	for _, u := range s.Unlisted {
		fmt.Fprintln(w, u)
	}
	writeUnknown(w, s.Unknown)
}

// writeUnknown writes what a look for machines that the state does not know has found.
func writeUnknown(w io.Writer, found *unrecorded.Found) {
	if found != nil {
		fmt.Fprintln(w, strings.Join(found.Lines(), "\n"))
	}
}
