package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/rollout"
)

func newRollout(a *app) *cobra.Command {
	o, dryRun, stage := rollout.Options{}, false, ""
	cmd := a.valueFlags(&cobra.Command{
		Use:   "rollout CLUSTER",
		Short: "Bring a running cluster to its configuration, machine by machine",
		Long: `Change a running cluster to what its configuration says: another release of Talos or
Kubernetes, another schematic, hardware or configuration of machines, machines that are
new and machines that leave. Workers come first, then control planes, one at a time.

Before each machine, castle checks that the gates are open, etcd has all voters and
Longhorn's volumes all replicas. It drains the node within its PodDisruptionBudgets,
plans the change anew for that machine alone, and applies it only if it does no more
than was confirmed. It goes on once the machine has proved what it runs and the cluster
is as before. A failure stops the rollout before the next machine. The same command
completes a rollout that failed or was killed.

What cannot succeed, such as a budget that is never met or a minor release that is
skipped, is refused before anything is touched: exit code 4. --dry-run lists the steps,
what each interrupts, and how long it took before, with the same exit code.

castle backs up etcd before the first machine, unless a backup is younger than an hour.

--replace makes a machine anew: its replicas move to other machines, its Pods too, a
control plane leaves etcd, and its disks end with it.

A chart whose version has changed is upgraded as by create, with the gates of its stage.
--rollback returns such a stage to the values with which it was ready last.`,
		Example: `  castle rollout blue --dry-run
  castle rollout blue
  castle rollout blue --replace worker-02
  castle rollout blue --rollback longhorn`,
		SuggestFor: []string{"upgrade"},
		Args:       a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dryRun {
				return a.onCluster(a.progress, listRollout(a, &o))(cmd, args)
			}
			if !a.yes {
				o.Confirm, o.ConfirmLoss = confirmRollout(a), confirmLoss(a)
			}
			run := func(ctx context.Context, c *cluster.Cluster, _ []string) error {
				return reporting(a, c, func() error {
					if stage != "" {
						return rollout.Back(ctx, c, stage, o)
					}
					return rollout.Run(ctx, c, o)
				})
			}
			return a.onCluster(a.runReporter, run)(cmd, args)
		},
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list the steps, and change nothing")
	cmd.Flags().StringSliceVar(&o.Replace, "replace", nil, "make this `MACHINE` anew; repeatable")
	cmd.Flags().StringVar(&stage, "rollback", "",
		"return this `STAGE` to what was ready last, and change nothing else")
	cmd.MarkFlagsMutuallyExclusive("rollback", "replace")
	cmd.MarkFlagsMutuallyExclusive("rollback", "dry-run")
	cmd.Flags().BoolVar(&o.Force, "force", false, "delete Pods that no controller starts again")
	cmd.Flags().BoolVar(&o.WithoutBackup, "without-backup", false, "take no backup of etcd before")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	return a.runFlags(cmd)
}

func listRollout(a *app, o *rollout.Options) action {
	return func(ctx context.Context, c *cluster.Cluster, _ []string) error {
		p, err := rollout.DryRun(ctx, c, *o)
		if err != nil {
			return err
		}
		if err = a.print(p, func(w io.Writer) { printRollout(w, p) }); err == nil && len(p.Obstacles) > 0 {
			err = exitError(exitPreflight)
		}
		return err
	}
}

// printRollout prints the steps, one machine after the other.
func printRollout(w io.Writer, p *rollout.List) {
	if len(p.Steps) == 0 {
		fmt.Fprintln(w, "no machine changes")
	}
	total, known := 0.0, true
	for i, s := range p.Steps {
		usual := ""
		if total, known = total+s.UsualSeconds, known && s.UsualSeconds > 0; s.UsualSeconds > 0 {
			usual = fmt.Sprintf(" (usually %s)", briefly(s.UsualSeconds))
		}
		fmt.Fprintf(w, "%2d. %s %s%s\n", i+1, s.Machine, s, usual)
		if len(s.Disks) > 0 {
			fmt.Fprintf(w, "      its disks end with it: %s\n", strings.Join(s.Disks, ", "))
		}
		if len(s.Volumes) > 0 && s.Drains { // else nothing moves: an obstacle names them
			fmt.Fprintf(w, "      Longhorn's volumes that only it has move first: %s\n",
				strings.Join(s.Volumes, ", "))
		}
	}
	if known && len(p.Steps) > 0 {
		fmt.Fprintf(w, "about %s\n", briefly(total))
	}
	for _, text := range p.Obstacles {
		fmt.Fprintf(w, "obstacle: %s\n", text)
	}
}

func briefly(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// confirmRollout shows the steps of a rollout and asks. Without a terminal the answer is no.
func confirmRollout(a *app) func(*rollout.List) error {
	return func(p *rollout.List) error {
		if isTerminal(a.stdin) {
			printRollout(a.stderr, p)
		}
		return confirm(a, "yes", "yes", "change one machine after the other", "nothing was changed")
	}
}
