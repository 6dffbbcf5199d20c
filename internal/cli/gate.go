package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newGate(a *app) *cobra.Command {
	o := castle.GateOptions{}
	cmd := &cobra.Command{
		Use:   "gate CLUSTER [STAGE|LAYER]",
		Short: "Ask gates whether they are open, or wait until they are",
		Long: `Ask each gate once whether it is open: all of them, or those of one stage or
layer. With --wait, wait for each as a create does, as long as its stage says.
Terraform is not started and nothing is locked, so this may run beside a create.

Exit code 0 only if all are open, else 5. A stage that was never created is not
open, and not waited for. With -o json the answer is one document, with --wait
too; how a wait goes on is told on stderr.`,
		Example: `  castle gate blue
  castle gate blue networking --wait
  castle gate blue metallb --wait --timeout 2m -o json`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("needs a cluster" + a.known())
			case len(args) > 2:
				return fmt.Errorf("needs a cluster and at most one stage or layer, not %d", len(args)-1)
			case !o.Wait && o.Timeout != 0:
				return errors.New("--timeout says how long --wait waits; without it each gate is asked once")
			case o.Timeout < 0:
				return fmt.Errorf("--timeout %s is below zero", o.Timeout)
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				o.Of = args[1]
			}
			c, err := a.open(args[0], a.progress())
			if err != nil {
				return err
			}
			report, err := c.Gates(cmd.Context(), o)
			if err != nil {
				return err
			}
			if a.output == "json" {
				err = a.printJSON(report)
			} else {
				err = printGates(a.stdout, report)
			}
			return errors.Join(err, report.Closed())
		},
	}
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "wait until each gate is open or its time is over")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "with --wait: wait `DURATION` for each gate, whatever its stage says")
	a.valueFlags(cmd)
	return cmd
}

func printGates(w io.Writer, report castle.GateReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "layer\tstage\tgate\t\n")
	row := func(s castle.StageGates, gate, answer string) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Layer, s.Name, gate, strings.ReplaceAll(answer, "\n", " "))
	}
	for _, s := range report.Stages {
		switch {
		case s.Missing != "":
			row(s, "-", s.Missing)
			continue
		case len(s.Gates) == 0:
			row(s, "-", "has no gates")
		}
		for _, g := range s.Gates {
			answer := "open"
			if !g.Open {
				answer = "closed: " + g.Reason
			}
			row(s, g.Name, answer)
		}
	}
	return t.Flush()
}
