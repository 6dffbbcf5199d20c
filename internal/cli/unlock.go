package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/share"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

func newUnlock(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock CLUSTER",
		Short: "Remove the lock of a dead run from the store",
		Long: `Remove the lock of a dead run from the store. It is seldom necessary: the next create
or destroy takes over such a lock by itself. castle shows the holder and its last sign of
life, and asks for the cluster's name. It watches the log for as long as the lock lasts. A
holder that gives a sign of life meanwhile keeps its lock: exit code 7.

Without a store, the lock belongs to a process on this machine and ends with it.`,
		Example: `  castle unlock blue
  castle unlock blue --yes`,
		Args: a.oneCluster(),
		RunE: onPlace(a, func(ctx context.Context, c *cluster.Cluster) error {
			if c.Store == nil {
				return unlockDirectory(a, c)
			}
			head, err := share.Locked(ctx, c)
			if err != nil {
				return err
			}
			if head == nil {
				fmt.Fprintf(a.stderr, "castle: %s is not locked in %s\n", c.Name(), c.Place())
				return nil
			}
			if err := printTable(a.stderr, func(w io.Writer) { printHolder(w, c, head) }); err != nil {
				return err
			}
			if err := confirmCluster(a, c, "unlock it", "the lock stays"); err != nil {
				return err
			}
			removed, err := share.Unlock(ctx, c, head.Lock.Run, noticeLine(a))
			switch {
			case err != nil:
				return err
			case !removed:
				fmt.Fprintf(a.stderr, "castle: %s: the run itself has released the lock now\n", c.Name())
			default:
				fmt.Fprintf(a.stderr, "castle: unlocked %s\n  what the run began is unfinished: %s\n",
					c.Name(), completion(c, head.Lock.Run))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	return cmd
}

// completion names the command that completes a run.
func completion(c *cluster.Cluster, run string) string {
	switch kind := state.RunKind(run); kind {
	case "create", "destroy", "recreate", "rollout":
		return fmt.Sprintf("`%s` completes it", c.Command(kind))
	case "restore":
		return fmt.Sprintf("`%s --backup newest` completes it", c.Command(kind))
	case "rotate":
		return fmt.Sprintf("`%s passwords` completes it", c.Command(kind))
	case "renew":
		return fmt.Sprintf("`%s` completes it, or renews again", c.Command("create"))
	}
	return fmt.Sprintf("`%s` shows what is to be done", c.Command("status"))
}

// unlockDirectory explains the lock of a state directory.
func unlockDirectory(a *app, c *cluster.Cluster) error {
	if alive := c.Dir.Holder(); alive != nil {
		return alive
	}
	fmt.Fprintf(a.stderr, "castle: no process on this machine holds the lock of %s; there is nothing to "+
		"unlock\n  the lock in %s ends with its process, and the next command takes over from a dead run\n",
		c.Name(), c.Dir.Path())
	return nil
}

func printHolder(w io.Writer, c *cluster.Cluster, head *commits.Commit) {
	l := head.Lock
	fmt.Fprintf(w, "%s is locked in %s:\n", c.Name(), c.Place())
	fmt.Fprintf(w, "  run\t%s\n  host\t%s\n  user\t%s\n  process\t%d\n  since\t%s (%s ago)\n"+
		"  last sign of life\t%s (%s ago), commit %d\n", l.Run, l.Host, head.User, l.PID, localTime(l.Since),
		age(l.Since), localTime(head.Time), age(head.Time), head.Sequence)
}
