package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newRecreate(a *app) *cobra.Command {
	o := castle.RecreateOptions{}
	yes := false
	cmd := &cobra.Command{
		Use:   "recreate CLUSTER",
		Short: "Raze a cluster and raise it again, as one run",
		Long: `Raze a cluster as destroy does and raise it again as create does, as one run. If
not all is gone, nothing is raised; if the secrets that it is made from cannot be
read, nothing is razed. Wherever it ended, the same command goes on.
What the secrets layer made stays (keys, passwords, Talos' secrets), so that what
others were told is still true; --rotate makes it anew. What is persistent stays.
Asks for the cluster's name; without a terminal it needs --yes.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			reporter, done := a.runReporter()
			// Unlike a destroy it needs a valid configuration: it ends with a create.
			c, err := a.open(args[0], reporter)
			if err != nil {
				return err
			}
			if err := a.mayGo(c); err != nil {
				return err
			}
			re, err := c.Recreation(o)
			if err != nil {
				return err
			}
			if err := a.explainRecreate(c, re); err != nil {
				return err
			}
			if len(re.Doomed) > 0 {
				if err := a.agreed(c, "destroy it and create it again", "nothing was destroyed", yes); err != nil {
					return err
				}
			}
			defer done()
			return c.Recreate(cmd.Context(), re)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.Rotate, "rotate", false, "make keys, passwords and Talos' secrets anew, too")
	cmd.Flags().BoolVar(&o.Graceful, "graceful", false, "delete what is in the cluster properly before the cluster goes")
	cmd.Flags().BoolVar(&o.Refresh, "refresh", false, "apply what is up to date, too")
	a.valueFlags(cmd)
	return cmd
}

// explainRecreate shows what goes and what stays.
func (a *app) explainRecreate(c *castle.Castle, re *castle.Recreation) error {
	if !re.Razed.IsZero() {
		fmt.Fprintf(a.stderr, "castle: %s: the recreate of %s has destroyed what was to go; what stands was made since and is completed (`castle destroy %s` first begins anew)\n",
			c.Name(), moment(re.Razed), c.Cluster().Name)
		return nil
	}
	if len(re.Doomed) == 0 {
		fmt.Fprintf(a.stderr, "castle: %s: nothing stands that would have to go; creating it\n", c.Name())
		return nil
	}
	t := tabwriter.NewWriter(a.stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "To be destroyed of %s and created again:\n", c.Name())
	for _, d := range re.Doomed {
		how := ""
		if d.Collapses {
			how = "ends with the cluster"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", d.Record.Layer, d.Record.Name, count(len(d.Resources), "resource"), how)
	}
	if len(re.Kept) > 0 {
		fmt.Fprintf(t, "  what the secrets layer made stays unless --rotate is given: %s\n", strings.Join(re.Kept, ", "))
	}
	if len(re.Persistent) > 0 {
		fmt.Fprintf(t, "  what is persistent stays: %s\n", strings.Join(re.Persistent, ", "))
	}
	return t.Flush()
}
