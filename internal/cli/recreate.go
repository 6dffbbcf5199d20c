package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/recreate"
)

func newRecreate(a *app) *cobra.Command {
	o := recreate.Options{}
	yes := false
	cmd := &cobra.Command{
		Use:   "recreate CLUSTER",
		Short: "Destroy a cluster and create it again in one run",
		Long: `Destroy a cluster as destroy does and create it again as create does, in one run. If
anything remains after the destroy, nothing is created; if the secrets that the
cluster needs cannot be read, nothing is destroyed. The same command resumes an
interrupted run. The secrets layer (keys, passwords, Talos' secrets) stays, so that
clients that trust it keep working; --rotate replaces it. Persistent stages stay.
Asks for the cluster's name; without a terminal it requires --yes.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			reporter, done := a.runReporter()
			// Unlike destroy, it requires a valid configuration: it ends with a create.
			c, err := a.open(args[0], reporter)
			if err != nil {
				return err
			}
			if err := checkProtection(a, c); err != nil {
				return err
			}
			re, err := recreate.Prepare(c, o)
			if err != nil {
				return err
			}
			if err := printRecreate(a, c, re); err != nil {
				return err
			}
			if len(re.Stages) > 0 {
				err := confirmCluster(a, c, "destroy it and create it again", "nothing was destroyed", yes)
				if err != nil {
					return err
				}
			}
			defer done()
			return recreate.Run(cmd.Context(), c, re)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.Rotate, "rotate", false, "replace keys, passwords and Talos' secrets, too")
	cmd.Flags().BoolVar(&o.Graceful, "graceful", false,
		"delete the resources inside the cluster before the cluster")
	cmd.Flags().BoolVar(&o.Refresh, "refresh", false, "apply stages that are up to date, too")
	a.valueFlags(cmd)
	return cmd
}

// printRecreate shows which stages a recreate destroys and which stay.
func printRecreate(a *app, c *cluster.Cluster, re *recreate.Plan) error {
	switch {
	case !re.Destroyed.IsZero():
		_, err := fmt.Fprintf(a.stderr, "castle: %s: the recreate of %s has destroyed the cluster; "+
			"resuming its create (to start over, run `castle destroy %s` first)\n",
			c.Name(), localTime(re.Destroyed),
			c.Config.Name)
		return err
	case len(re.Stages) == 0:
		_, err := fmt.Fprintf(a.stderr, "castle: %s: nothing to destroy; creating it\n", c.Name())
		return err
	}
	kept, persistent := "", ""
	if len(re.Kept) > 0 {
		kept = "the secrets layer stays unless --rotate is given: " + strings.Join(re.Kept, ", ")
	}
	if len(re.Persistent) > 0 {
		persistent = "persistent stages stay: " + strings.Join(re.Persistent, ", ")
	}
	return printStages(a.stderr, "Would destroy and create again: "+c.Name(), re.Stages, kept, persistent)
}
