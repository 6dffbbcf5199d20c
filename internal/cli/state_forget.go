package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newStateForget(a *app) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "forget CLUSTER STAGE ADDRESS…",
		Short: "Remove resources from a stage's state; they go on existing",
		Long: `Remove resources from a stage's state with Terraform's own state rm, locked
against runs and with a snapshot before. What they stand for goes on existing;
castle does not know it any more. An ADDRESS is a resource's, with all its
instances, or a module's; of what a destroy has left over it is what the destroy
called it (421, local:snippets/user.yaml), and no later destroy asks for it. A state that cannot be read is refused. Asks for the
cluster's name; without a terminal it needs --yes.`,
		Example: `  castle state forget blue proxmox-talos 'module.nodes.proxmox_virtual_environment_vm.this["worker-02"]'`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return errors.New("needs a cluster, a stage and what is to be forgotten")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.openAs(castle.Options{Cluster: args[0], Reporter: a.progress(), Recorded: true})
			if err != nil {
				return err
			}
			f, err := c.Forgettable(args[1], args[2:])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "To be forgotten of %s, stage %s:\n", c.Name(), f.Stage)
			for _, res := range f.Resources {
				fmt.Fprintf(a.stderr, "  %s\n", res)
			}
			fmt.Fprint(a.stderr, "They go on existing and castle does not know them any more: a destroy leaves them standing\n"+
				"and a create makes them anew. Only a VM that bears this cluster's name and tags is found and taken back.\n")
			if err := a.agreed(c, "forget them", "nothing was forgotten", yes); err != nil {
				return err
			}
			if err := c.Forget(cmd.Context(), f); err != nil {
				return err
			}
			if !f.Restorable() {
				fmt.Fprintf(a.stderr, "castle: forgot %s of %s\n", count(len(f.Resources), "thing"), f.Stage)
				return nil
			}
			fmt.Fprintf(a.stderr, "castle: forgot %s of %s; `castle state restore %s %s --snapshot SERIAL` goes back (`castle state show` lists the serials)\n",
				count(len(f.Resources), "resource"), f.Stage, c.Cluster().Name, f.Stage)
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
