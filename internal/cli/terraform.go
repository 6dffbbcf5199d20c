package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/repair"
)

func newTerraform(a *app) *cobra.Command {
	return a.valueFlags(&cobra.Command{
		Use:   "terraform CLUSTER STAGE -- ARGS…",
		Short: "Run a Terraform command on a stage",
		Long: `Run a Terraform command in a stage's work directory, with the inputs that create
would use. castle locks the cluster and takes a snapshot of the state first. STAGE may
be a layer that has one stage.`,
		Example: `  castle terraform blue machines -- plan
  castle terraform blue metallb -- state list`,
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 2 || len(args) < 3 {
				return errors.New("requires a cluster, a stage, -- and Terraform's arguments")
			}
			return nil
		}),
		RunE: a.onCluster(nil, func(ctx context.Context, c *cluster.Cluster, args []string) error {
			code, err := repair.Terraform(ctx, c, args[0], args[1:], a.stdin, a.values, a.commands)
			if err == nil && code != 0 {
				return exitError(code)
			}
			return err
		}),
	})
}
