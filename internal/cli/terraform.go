package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/operation/repair"
)

func newTerraform(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "terraform CLUSTER STAGE -- ARGS…",
		Short: "Run a Terraform command on a stage",
		Long: `Run a Terraform command in a stage's work directory, with the inputs that create
would use. castle locks the cluster and takes a snapshot of the state first. STAGE may
be a layer that has one stage.`,
		Example: "  castle terraform blue proxmox-talos -- plan\n  castle terraform blue metallb -- state " +
			"list",
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at != 2 || len(args) < 3 {
				return errors.New("requires a cluster, a stage, -- and Terraform's arguments")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(args[0], nil)
			if err != nil {
				return err
			}
			code, err := repair.Terraform(cmd.Context(), c, args[1], args[2:], a.stdin, a.stdout, a.stderr)
			if err == nil && code != 0 {
				return exitError(code)
			}
			return err
		},
	}
	a.valueFlags(cmd)
	return cmd
}
