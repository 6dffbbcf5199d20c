package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/rotation"
)

func newRotate(a *app) *cobra.Command {
	return a.runFlags(a.valueFlags(&cobra.Command{
		Use:   "rotate CLUSTER passwords",
		Short: "Give the users of the database new passwords, without a failed login",
		Long: `Each database user has two login roles, such as admin and admin-alt, and clients use one.
castle gives the other one a new password, waits until it works, and has Vault's
connection and its secret with the passwords use that role. The former role keeps its
password until the next rotation, so clients have that long to read the secret again.

castle refuses, with exit code 4, if a stage with the passwords has other changes or the
other role could not take over. The same command completes a killed rotation.`,
		Example: "  castle rotate blue passwords",
		Args: a.cluster(cobra.MatchAll(cobra.ExactArgs(2), func(_ *cobra.Command, args []string) error {
			if args[1] != "passwords" {
				return errors.New("castle rotates passwords: castle rotate " + args[0] + " passwords")
			}
			return nil
		})),
		RunE: a.onCluster(a.runReporter, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			return reporting(a, c, func() error { return rotation.Run(ctx, c) })
		}),
	}))
}
