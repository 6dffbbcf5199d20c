package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newDestroy(a *app) *cobra.Command {
	o := castle.DestroyOptions{}
	yes := false
	cmd := &cobra.Command{
		Use:   "destroy CLUSTER",
		Short: "Raze a cluster and prove that nothing is left",
		Long: `Raze what was recorded of a cluster, in reverse order. If the platform goes, what
is inside the cluster is not contacted: it ends with the cluster. Asks for the
cluster's name; without a terminal it needs --yes.

It works with what was recorded at the last apply, whatever the configuration and
flags say by now; only a Proxmox API token that was rotated since is taken from the
configuration, from PROXMOX_VE_API_TOKEN, or read again where it was read from.

Then Proxmox is asked whether machines, disks and images are gone; what is still
being deleted is waited for. What was proved is in runs/<id>/receipt.json of the
state directory. Anything left, or not proved gone, is exit code 6 and a list with
the way to remove each; the same command asks again.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			reporter, done := a.runReporter()
			c, err := a.openAs(castle.Options{Cluster: args[0], Reporter: reporter, Recorded: true})
			if err != nil {
				return err
			}
			if err := a.mayGo(c); err != nil {
				return err
			}
			doomed, err := c.Doomed(o)
			if err != nil {
				return err
			}
			stay, err := staying(c, o, doomed)
			if err != nil {
				return err
			}
			due, err := c.ReceiptDue()
			if err != nil {
				return err
			}
			if len(doomed) == 0 && due { // a killed run has left only this to do
				defer done()
				return c.Destroy(cmd.Context(), o)
			}
			if len(doomed) == 0 {
				fmt.Fprintf(a.stderr, "castle: %s: %s\n", c.Name(), cmp.Or(stay, "nothing stands; there is nothing to destroy"))
				return nil
			}
			if err := a.confirm(c, doomed, stay, yes); err != nil {
				return err
			}
			defer done()
			return c.Destroy(cmd.Context(), o)
		},
	}
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.All, "all", false, "persistent stages, too")
	cmd.Flags().BoolVar(&o.Graceful, "graceful", false, "delete what is in the cluster properly before the cluster goes")
	a.valueFlags(cmd)
	return cmd
}

// staying says which stages are left because they are persistent, "" if none is.
func staying(c *castle.Castle, o castle.DestroyOptions, doomed []*castle.Doomed) (string, error) {
	o.All = true
	all, err := c.Doomed(o)
	if err != nil {
		return "", err
	}
	var names []string
	for _, d := range all {
		if !slices.ContainsFunc(doomed, func(x *castle.Doomed) bool { return x.Record.Name == d.Record.Name }) {
			names = append(names, d.Record.Name)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return "what is persistent stays unless --all is given: " + strings.Join(names, ", "), nil
}

// mayGo refuses to destroy a protected cluster. What was recorded is destroyed
// whatever the configuration says, so an invalid one is only told of.
func (a *app) mayGo(c *castle.Castle) error {
	invalid := c.Invalid()
	switch {
	case c.Cluster().Protect && invalid != nil:
		return invalid // whether it is protected may not be known
	case c.Cluster().Protect:
		return &unconfirmedError{fmt.Sprintf("%s is protected: take `protect = true` out of %s/cluster.hcl first", c.Name(), c.Cluster().Dir)}
	case invalid != nil:
		more, first := "", invalid.Diagnostics[0]
		if n := len(invalid.Diagnostics) - 1; n > 0 {
			more = ", and " + count(n, "more problem")
		}
		where := ""
		if first.Subject != nil {
			where = fmt.Sprintf("%s:%d: ", first.Subject.Filename, first.Subject.Start.Line)
		}
		fmt.Fprintf(a.stderr, "castle: %s%s%s; what was recorded is destroyed all the same\n", where, first.Summary, more)
	}
	return nil
}

// confirm shows what goes and asks for the cluster's name.
func (a *app) confirm(c *castle.Castle, doomed []*castle.Doomed, stay string, yes bool) error {
	t := tabwriter.NewWriter(a.stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "To be destroyed of %s:\n", c.Name())
	for _, d := range doomed {
		how := ""
		if d.Collapses {
			how = "ends with the cluster"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", d.Record.Layer, d.Record.Name, count(len(d.Resources), "resource"), how)
	}
	if stay != "" {
		fmt.Fprintf(t, "  %s\n", stay)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return a.agreed(c, "destroy it", "nothing was destroyed", yes)
}
