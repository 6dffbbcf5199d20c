package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/recreate"
)

func newRecreate(a *app) *cobra.Command {
	o := recreate.Options{}
	cmd := a.valueFlags(&cobra.Command{
		Use:   "recreate CLUSTER",
		Short: "Destroy a cluster and create it again in one run",
		Long: `Destroy a cluster as destroy does and create it again as create does, in one run. If
anything remains after the destroy, nothing is created; if the secrets that the
cluster needs cannot be read, nothing is destroyed. The same command resumes an
interrupted run. The secrets layer (keys, passwords, Talos' secrets) stays, so that
clients that trust it keep working; --rotate replaces it. Persistent stages stay.
Data of survives blocks are saved and proved before the first machine is touched, and
the new cluster begins with them.
Asks for the cluster's name; without a terminal it requires --yes.`,
		Example: `  castle recreate blue
  castle recreate blue --rotate --yes`,
		Args: a.oneCluster(),
		// Unlike destroy, it requires a valid configuration: it ends with a create.
		RunE: a.onCluster(a.runReporter, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			if err := checkProtection(a, c); err != nil {
				return err
			}
			re, err := recreate.Prepare(ctx, c, o)
			if err != nil {
				return err
			}
			switch {
			case !re.Destroyed.IsZero():
				fmt.Fprintf(a.stderr, "castle: %s: the recreate of %s has destroyed the cluster; "+
					"resuming its create (to start over, run `castle destroy %s` first)\n",
					c.Name(), localTime(re.Destroyed), c.Config.Name)
			case len(re.Stages) == 0:
				fmt.Fprintf(a.stderr, "castle: %s: nothing to destroy; creating it\n", c.Name())
			default:
				err = printStages(ctx, a, c, "Would destroy and create again: ", re.Stages, o.DiscardData,
					listIf("the secrets layer stays unless --rotate is given: ", re.Kept),
					listIf("persistent stages stay: ", re.Persistent))
			}
			if err == nil && len(re.Stages) > 0 {
				err = confirmCluster(a, c, "destroy it and create it again", "nothing was destroyed")
			}
			if err != nil {
				return err
			}
			return reporting(a, c, func() error { return recreate.Run(ctx, c, re) })
		}),
	})
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.Rotate, "rotate", false, "replace keys, passwords and Talos' secrets, too")
	cmd.Flags().BoolVar(&o.Graceful, "graceful", false,
		"delete the resources inside the cluster before the cluster")
	discardFlag(cmd, &o.DiscardData)
	backupFlag(cmd, &o.Backup)
	cmd.Flags().BoolVar(&o.Refresh, "refresh", false, "apply stages that are up to date, too")
	return a.runFlags(cmd)
}
