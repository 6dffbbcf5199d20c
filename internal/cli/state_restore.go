package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newStateRestore(a *app) *cobra.Command {
	o := castle.RestoreOptions{}
	yes := false
	cmd := &cobra.Command{
		Use:   "restore CLUSTER STAGE",
		Short: "Put a good snapshot in the place of a stage's state",
		Long: `Put a good snapshot in the place of a stage's state, or, with --errored, the state
that Terraform could not write. Locked against runs; what is there now is kept,
and it is said where. A state of another lineage is refused. What was made since
the snapshot is not known to castle any more. Asks for the cluster's name; without
a terminal it needs --yes.`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("needs a cluster and a stage")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Errored && cmd.Flags().Changed("snapshot") {
				return usageError(cmd, fmt.Errorf("--errored and --snapshot exclude each other"))
			}
			c, err := a.openAs(castle.Options{Cluster: args[0], Reporter: a.progress(), Recorded: true})
			if err != nil {
				return err
			}
			o.Stage = args[1]
			re, err := c.Restorable(o)
			if err != nil {
				return err
			}
			if re.Same {
				fmt.Fprintf(a.stderr, "castle: %s: the state of %s is this already (serial %d); nothing was changed\n", c.Name(), re.Stage, re.Serial)
				return nil
			}
			a.explainRestore(c, re)
			if err := a.agreed(c, "restore it", "nothing was restored", yes); err != nil {
				return err
			}
			aside, err := c.Restore(cmd.Context(), re)
			for _, path := range aside {
				fmt.Fprintf(a.stderr, "castle: what was there is kept in %s\n", path)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "castle: restored serial %d of %s; `castle create %s` brings the stage up to date\n", re.Serial, re.Stage, c.Cluster().Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Snapshot, "snapshot", "newest", "the snapshot with this `SERIAL` or name, or newest")
	cmd.Flags().BoolVar(&o.Errored, "errored", false, "take the state that Terraform could not write, if it is newer")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// explainRestore shows what a restore changes.
func (a *app) explainRestore(c *castle.Castle, re *castle.Restoration) {
	from := "snapshot " + re.Snapshot
	if re.Snapshot == "" {
		from = "what Terraform could not write"
	}
	fmt.Fprintf(a.stderr, "To be restored in %s, stage %s:\n  now: %s\n  then: serial %d of %s (%s)\n",
		c.Name(), re.Stage, re.Present, re.Serial, moment(re.Taken), from)
	for _, part := range []struct {
		title     string
		addresses []string
	}{
		{"not known any more", re.Forgotten},
		{"known again", re.Remembered},
	} {
		if len(part.addresses) > 0 {
			fmt.Fprintf(a.stderr, "  %s: %s\n", part.title, strings.Join(part.addresses, ", "))
		}
	}
}
