package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/destroy"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newDestroy(a *app) *cobra.Command {
	o := destroy.Options{}
	cmd := a.valueFlags(&cobra.Command{
		Use:   "destroy CLUSTER",
		Short: "Destroy a cluster and verify that nothing remains",
		Long: `Destroy the recorded stages of a cluster in reverse order. If the platform is
destroyed, castle does not contact the resources inside the cluster: they end with
it. Asks for the cluster's name; without a terminal it requires --yes.

castle uses what it recorded at the last apply, whatever the configuration and flags
are now. Only a rotated Proxmox API token comes from the configuration, from
PROXMOX_VE_API_TOKEN, or from the store that it was read from.

If the record lacks the machines of the configuration, castle asks Proxmox for VMs with
the cluster's name and tags. If there are any, it destroys nothing: exit code 4. If it
cannot ask, nothing is proved: exit code 6.

Data of survives blocks are saved first: Flux is suspended, all writes end, and castle
proves in the object store that they can be restored. If it cannot, everything is set
going again and nothing is destroyed: exit code 4. --discard-data goes on without.

Volumes that controllers in the cluster have made in a cloud are listed with their claims.
castle keeps those that are protected there or have the reclaim policy Retain. If it
cannot tell the policy of one, nothing is destroyed: exit code 4. --discard-data deletes
such volumes.

castle first runs the recorded preflights of all stages; a refusal ends the command
before anything is destroyed. castle deletes only VMs that their uuids prove to be the
cluster's. One with another uuid stays. One that looks like the cluster's, and that no
known uuid proves, stops the destroy: exit code 4. An image stays if this state did not
make it, or if another cluster may use it.

castle then verifies in Proxmox that machines, disks and images are gone, and waits
for deletions that are in progress. runs/<id>/receipt.json in the state directory
records the result. If anything remains or could not be verified, castle lists it
with the remedies: exit code 6. The same command verifies again.`,
		Example: `  castle destroy blue
  castle destroy blue --only networking --yes
  castle destroy blue --all --yes`,
		SuggestFor: []string{"delete", "down", "remove"},
		Args:       a.oneCluster(),
		RunE: a.onRecorded(a.runReporter, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			if err := checkProtection(a, c); err != nil {
				return err
			}
			toDestroy, err := destroy.Select(c, o)
			if err != nil {
				return err
			}
			kept, err := keptStages(c, o)
			if err != nil {
				return err
			}
			nothing, err := destroy.Nothing(ctx, c, o)
			if err != nil {
				return err
			}
			due, err := destroy.ReceiptDue(c)
			if err != nil {
				return err
			}
			switch {
			case len(toDestroy) == 0 && due: // a killed run left only the verification
			case len(toDestroy) == 0:
				fmt.Fprintf(a.stderr, "castle: %s: %s\n", c.Name(), cmp.Or(kept, nothing))
				return nil
			default:
				err := printStages(ctx, a, c, "Would destroy: ", toDestroy, o.DiscardData, kept)
				if err == nil {
					err = confirmCluster(a, c, "destroy it", "nothing was destroyed")
				}
				if err != nil {
					return err
				}
			}
			return reporting(a, c, func() error { return destroy.Run(ctx, c, o) })
		}),
	})
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.All, "all", false, "destroy persistent stages, too")
	cmd.Flags().BoolVar(&o.Graceful, "graceful", false,
		"delete the resources inside the cluster before the cluster")
	discardFlag(cmd, &o.DiscardData)
	return a.runFlags(cmd)
}

// discardFlag adds --discard-data.
func discardFlag(cmd *cobra.Command, discard *bool) {
	cmd.Flags().BoolVar(discard, "discard-data", false,
		"lose data of survives blocks that are not saved yet, and volumes of an unknown reclaim policy")
}

// keptStages describes the stages that stay because they are persistent, "" if there are none.
func keptStages(c *cluster.Cluster, o destroy.Options) (string, error) {
	if o.All {
		return "", nil
	}
	o.All = true
	all, err := destroy.Select(c, o)
	if err != nil {
		return "", err
	}
	var names []string
	for _, d := range all {
		if d.Record.Persistent {
			names = append(names, d.Record.Name)
		}
	}
	return listIf("persistent stages stay unless --all is given: ", names), nil
}

// checkProtection refuses to destroy a protected cluster. An invalid configuration is
// only a warning, because the destroy uses the record.
func checkProtection(a *app, c *cluster.Cluster) error {
	invalid := c.InvalidConfig
	switch {
	case c.Config.Protect && invalid != nil:
		return invalid // it may hide that the cluster is protected
	case c.Config.Protect:
		return &unconfirmedError{fmt.Sprintf("%s is protected: remove `protect = true` from "+
			"%s/cluster.hcl first", c.Name(), c.Config.Dir)}
	case invalid != nil:
		first, others := invalid.Diagnostics[0], len(invalid.Diagnostics)-1
		more, where := textIf(others > 0, ", and "+count(others, "more problem")), ""
		if first.Subject != nil {
			where = fmt.Sprintf("%s:%d: ", first.Subject.Filename, first.Subject.Start.Line)
		}
		fmt.Fprintf(a.stderr, "castle: %s%s%s; destroy uses the record anyway\n", where, first.Summary, more)
		if a.problems {
			ui.NewJSON(a.stdout).ReportProblems(invalid.Diagnostics)
		}
	}
	return nil
}

// printStages lists the stages that a run would destroy, their machines, and remarks below them.
func printStages(ctx context.Context, a *app, c *cluster.Cluster, title string,
	toDestroy []*destroy.Stage, discards bool, remarks ...string) error {
	var machines, data []string
	for _, d := range toDestroy {
		machines = append(machines, d.Machines(c.Masker.Hide)...)
		for _, one := range d.Record.Survives {
			data = append(data, one.Label)
		}
		machines = append(machines, d.Volumes(ctx, c, discards)...)
	}
	remarks = append(remarks, listIf(textIf(!discards, "data that are saved first: ")+
		textIf(discards, "data that are lost, as far as they are not saved: "), data))
	return printTable(a.stderr, func(w io.Writer) {
		fmt.Fprintln(w, title+c.Name())
		for _, d := range toDestroy {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", d.Record.Layer, d.Record.Name,
				count(len(d.Resources), "resource"), textIf(d.EndsWithCluster, "ends with the cluster"))
		}
		writeRemarks(w, append(machines, remarks...)...)
	})
}

// writeRemarks writes an indented line for each remark that is not empty.
func writeRemarks(w io.Writer, remarks ...string) {
	for _, remark := range remarks {
		if remark != "" {
			fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(remark, "\n", "\n    "))
		}
	}
}
