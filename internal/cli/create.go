package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newCreate(a *app) *cobra.Command {
	o := castle.CreateOptions{}
	yes := false
	cmd := &cobra.Command{
		Use:   "create CLUSTER",
		Short: "Raise a cluster, or complete what was begun",
		Long: `Raise a cluster. What is up to date is left alone; what a failed or killed run
left unfinished is completed. What fails for a reason that passes by itself, such
as a lock of Proxmox' or an API server that restarts, is tried again, five times
at most. A failed stage stops only what needs it.
Before anything is changed, every VM id is asked for. What stands on one and is not
known to be castle's is never touched: exit code 4, with what it is and the ways
out. --adopt takes over machines that are this cluster's own by name, by all their
tags and by their node, though nothing here knows of them, as after a lost state.
Before anything that exists is replaced or destroyed, what that is is shown and
asked for; without a terminal it needs --yes, or that stage is left as it is and the
exit code is 3. What a run that was cut short left half made is completed unasked.

--plan applies exactly what ` + "`castle plan --plan-out`" + ` has saved: nothing is asked,
and if anything has moved since (configuration, values, secrets, code, states,
Terraform, castle itself), nothing is done; exit code 3. A stage that could not be
planned before others were applied is planned when it is its turn, and applied if it
makes what does not exist and changes nothing that does; otherwise it needs a new
plan, or --yes. The same command completes what was cut short, and does no more
than was reviewed.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := planDecides(cmd, o.Plan); err != nil {
				return err
			}
			reporter, done := a.runReporter()
			c, err := a.open(args[0], reporter)
			if err != nil {
				return err
			}
			if !yes {
				o.Agree = a.agreeing()
			}
			defer done()
			return c.Create(cmd.Context(), o)
		},
	}
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().BoolVar(&o.Refresh, "refresh", false, "apply what is up to date, too")
	cmd.Flags().BoolVar(&o.Adopt, "adopt", false, "take over machines that name, tags and node say are this cluster's")
	cmd.Flags().BoolVar(&yes, "yes", false, "replace and destroy what has to be, without asking")
	cmd.Flags().StringVar(&o.Plan, "plan", "", "apply exactly the plan that was saved in `FILE`")
	a.valueFlags(cmd)
	return cmd
}

// planDecides refuses flags that would make something else of a saved plan.
func planDecides(cmd *cobra.Command, plan string) error {
	for _, flag := range []string{"only", "from", "to", "refresh", "adopt"} {
		if plan != "" && cmd.Flags().Changed(flag) {
			return usageError(cmd, fmt.Errorf("--%s: with --plan, %s decides what is done", flag, plan))
		}
	}
	return nil
}

func selectionFlags(cmd *cobra.Command, s *castle.Selection) {
	cmd.Flags().StringSliceVar(&s.Only, "only", nil, "only these `STAGES or layers`")
	cmd.Flags().StringVar(&s.From, "from", "", "from this `STAGE or layer` on")
	cmd.Flags().StringVar(&s.To, "to", "", "up to this `STAGE or layer`")
}
