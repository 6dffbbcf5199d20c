package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func newTerraform(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "terraform CLUSTER STAGE -- ARGS…",
		Short: "Run any Terraform command on a stage",
		Long: `Run any Terraform command in a stage's work directory, with the inputs that a
create would use, locked against other runs and with the state snapshotted
before. STAGE may be a layer that has one stage.`,
		Example: "  castle terraform blue proxmox-talos -- plan\n  castle terraform blue metallb -- state list",
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at != 2 || len(args) < 3 {
				return errors.New("needs a cluster, a stage, -- and what Terraform is to do")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(args[0], nil)
			if err != nil {
				return err
			}
			code, err := c.Terraform(cmd.Context(), args[1], args[2:], a.stdin, a.stdout, a.stderr)
			if err == nil && code != 0 {
				return exitError(code)
			}
			return err
		},
	}
	a.valueFlags(cmd)
	return cmd
}
