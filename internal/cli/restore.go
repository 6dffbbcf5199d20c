package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/restore"
)

func newRestore(a *app) *cobra.Command {
	o := restore.Options{}
	cmd := a.valueFlags(&cobra.Command{
		Use:   "restore CLUSTER --backup ID",
		Short: "Bring back a cluster that has lost its control planes",
		Long: `Create the control planes of a cluster again, with etcd as it was when the backup was
taken. castle makes the machines that are gone, resets control planes that are left
without a quorum, bootstraps etcd from the backup on the first one, lets the others join,
restarts each worker that ran before, and ends with a create.

castle refuses, with exit code 4, while any control plane could still serve, and a backup
whose keys are not those of the state. Everything that Kubernetes was told since the
backup is lost: castle names how long that is, and which stages it has changed since.
Objects that were deleted since are there again. Data in volumes stays as it is.

The same command completes a restore that failed or was killed.`,
		Example: `  castle backup list blue
  castle restore blue --backup 20261125-031500-k3zq`,
		Args: a.cluster(cobra.MatchAll(cobra.ExactArgs(1), func(*cobra.Command, []string) error {
			if o.Backup == "" {
				return errors.New("requires --backup with the id of a backup; see `castle backup list`")
			}
			return nil
		})),
		RunE: a.onCluster(a.runReporter, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			o.Confirm = confirmRestore(a, c)
			if !a.yes {
				o.ConfirmLoss = confirmLoss(a)
			}
			return reporting(a, c, func() error { return restore.Run(ctx, c, o) })
		}),
	})
	cmd.Flags().StringVar(&o.Backup, "backup", "", "restore from this `BACKUP`: its id, or newest")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	return a.runFlags(cmd)
}

// confirmRestore shows what a restore does and asks.
func confirmRestore(a *app, c *cluster.Cluster) func(*restore.Plan) error {
	return func(p *restore.Plan) error {
		if p.Completes {
			fmt.Fprintf(a.stderr, "castle: completing the restore from backup %s\n", p.Backup.ID)
			return nil
		}
		fmt.Fprintf(a.stderr, "Would restore etcd of %s from backup %s. What was changed in Kubernetes in "+
			"the last %s is lost.\n", c.Name(), p.Backup.ID, ageOf(p.Backup.Time))
		for _, line := range []string{
			listIf("stages that castle has changed since: ", p.Changed),
			listIf("control planes that are reset, without their data disks: ", p.Wiped),
			listIf("workers that restart: ", p.Restarts)} {
			if line != "" {
				fmt.Fprintln(a.stderr, " ", line)
			}
		}
		return confirmCluster(a, c, "restore it", "nothing was restored")
	}
}
