package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/operation/status"
)

func newGate(a *app) *cobra.Command {
	o := status.GateOptions{}
	cmd := a.valueFlags(&cobra.Command{
		Use:   "gate CLUSTER [STAGE|LAYER]",
		Short: "Check gates once, or wait until they are open",
		Long: `Check each gate once: all gates, or those of one stage or layer. With --wait, wait
for each gate as create does, with its stage's timeout. The command starts no Terraform
and takes no lock, so it may run beside a create.

Exit code 0 only if all gates are open, else 5. A stage that was never created counts
as closed, and castle does not wait for it. With -o json, stdout holds one document,
also with --wait; progress goes to stderr.`,
		Example: `  castle gate blue
  castle gate blue networking --wait
  castle gate blue metallb --wait --timeout 2m -o json`,
		Args: a.cluster(cobra.MatchAll(cobra.MaximumNArgs(2), func(*cobra.Command, []string) error {
			switch {
			case !o.Wait && o.Timeout != 0:
				return errors.New("--timeout requires --wait; without it each gate is checked once")
			case o.Timeout < 0:
				return fmt.Errorf("--timeout %s is negative", o.Timeout)
			}
			return nil
		})),
		RunE: a.onCluster(a.progress, func(ctx context.Context, c *cluster.Cluster, args []string) error {
			o.Of = strings.Join(args, "")
			report, err := status.Gates(ctx, c, o)
			if err != nil {
				return err
			}
			err = a.print(report, func(w io.Writer) { printGates(w, report) })
			return errors.Join(err, report.Closed())
		}),
	})
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "wait until each gate is open or times out")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0,
		"with --wait: wait `DURATION` for each gate instead of its stage's timeout")
	return cmd
}

func printGates(w io.Writer, report status.GateReport) {
	fmt.Fprintf(w, "layer\tstage\tgate\t\n")
	for _, s := range report.Stages {
		row := func(gate, answer string) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Layer, s.Name, gate, foreign.OneLine(answer))
		}
		switch {
		case s.Missing != "":
			row("-", s.Missing)
			continue
		case len(s.Gates) == 0:
			row("-", "has no gates")
		}
		for _, g := range s.Gates {
			row(g.Name, cmp.Or(textIf(g.Open, "open"), "closed: "+g.Reason))
		}
	}
}
