package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/operation/repair"
)

func newState(a *app) *cobra.Command {
	return group("state", "Inspect and repair Terraform states",
		`Inspect the stages' Terraform states and the snapshots that castle takes before and
after every change (the newest 20 of each stage), and repair them. castle never shows
values. No valid configuration is required.

If castle.hcl names a store, the states live there: migrate moves them, log shows the
commits, restore --commit goes back to one, and identity and rekey are for its keys.`,
		newStateList(a), newStateShow(a), newStateRestore(a), newStateForget(a), newStateLog(a),
		newStateMigrate(a), newStateIdentity(a), newStateRekey(a))
}

// onStates returns a RunE that reads the recorded states of a cluster, or of one stage if it is named.
func (a *app) onStates(do func(c *cluster.Cluster, states []repair.StageState) error) runE {
	return a.onRecorded(nil, func(_ context.Context, c *cluster.Cluster, args []string) error {
		states, err := repair.States(c, strings.Join(args, ""))
		if err != nil {
			return err
		}
		return do(c, states)
	})
}

func serial(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// stateLine is a stage in the JSON of `castle state list`.
type stateLine struct {
	Name      string    `json:"name"`
	Layer     string    `json:"layer"`
	Serial    uint64    `json:"serial"`
	Lineage   string    `json:"lineage"`
	Resources int       `json:"resources"`
	Applied   time.Time `json:"applied,omitzero"`
	Snapshots int       `json:"snapshots"`
	Problem   string    `json:"problem,omitempty"`
}

func newStateList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list CLUSTER [STAGE]",
		Short: "List the stages with their states and snapshots",
		Long: `List the stages that have a state, with serial, lineage and number of resources. A line
also has the time of the last apply, the number of snapshots, and a problem of the state.
STAGE may be a layer.`,
		Example: `  castle state list blue
  castle state list blue metallb -o json`,
		SuggestFor: []string{"ls"},
		Args:       a.cluster(cobra.MaximumNArgs(2)),
		RunE: a.onStates(func(c *cluster.Cluster, states []repair.StageState) error {
			lines := []stateLine{}
			for _, s := range states {
				lines = append(lines, stateLine{
					Name: s.Name, Layer: s.Layer, Serial: s.Serial, Lineage: s.Lineage,
					Resources: len(s.Resources), Applied: s.Applied, Snapshots: len(s.Snapshots),
					Problem: s.Problem,
				})
			}
			return a.print(statesJSON(c, lines), func(w io.Writer) {
				if len(states) == 0 {
					fmt.Fprintf(a.stderr, "castle: %s has no state of any stage\n", c.Name())
				}
				fmt.Fprintf(w, "layer\tstage\tserial\tlineage\tresources\tapplied\tsnapshots\t\n")
				for _, s := range lines {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\n", s.Layer, s.Name, serial(s.Serial),
						cmp.Or(s.Lineage, "-"), s.Resources, localTime(s.Applied), s.Snapshots,
						foreign.OneLine(s.Problem))
				}
			})
		}),
	}
}

// statesJSON is a document about the stages of a cluster.
func statesJSON(c *cluster.Cluster, stages any) any {
	return struct {
		Cluster  string `json:"cluster"`
		Platform string `json:"platform"`
		Stages   any    `json:"stages"`
	}{c.Config.Name, c.Config.Platform, stages}
}

func newStateShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show CLUSTER [STAGE]",
		Short: "Show the resources in a state, and its snapshots",
		Long: `Show the addresses of the resources in a stage's state, and its snapshots with serial
and time, the newest first. No values. STAGE may be a layer.`,
		Example: "  castle state show blue machines",
		Args:    a.cluster(cobra.MaximumNArgs(2)),
		RunE: a.onStates(func(c *cluster.Cluster, states []repair.StageState) error {
			return a.print(statesJSON(c, states), func(w io.Writer) {
				for _, s := range states {
					printState(w, s)
				}
			})
		}),
	}
}

func printState(w io.Writer, s repair.StageState) {
	fmt.Fprintf(w, "%s/%s: serial %s, lineage %s\n", s.Layer, s.Name, serial(s.Serial),
		cmp.Or(s.Lineage, "-"))
	if s.Problem != "" {
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(s.Problem, "\n", "\n  "))
	}
	for _, res := range s.Resources {
		note := cmp.Or(textIf(res.Deposed, "deposed: replaced, not yet deleted"),
			textIf(res.Tainted, "tainted: created in part"))
		fmt.Fprintf(w, "  %s\t%s\t%s\n", res.Address, res.Provider, note)
	}
	for _, snap := range s.Snapshots {
		what := snap.Problem
		if what == "" {
			what = fmt.Sprintf("serial %d\t%s", snap.Serial, count(snap.Resources, "resource"))
		}
		fmt.Fprintf(w, "  snapshot %s\t%s\t%s\n", snap.Name, localTime(snap.Taken), what)
	}
}

func newStateRestore(a *app) *cobra.Command {
	o := repair.RestoreOptions{}
	commit := int64(0)
	restoreSnapshot := a.onRecorded(a.progress, func(
		ctx context.Context, c *cluster.Cluster, args []string) error {
		o.Stage = args[0]
		re, err := repair.PrepareRestore(c, o)
		if err != nil {
			return err
		}
		if re.Same {
			fmt.Fprintf(a.stderr, "castle: %s: the state of %s already is this snapshot (serial %d); "+
				"nothing was changed\n", c.Name(), re.Stage, re.Serial)
			return nil
		}
		printRestore(a.stderr, c, re)
		if err := confirmCluster(a, c, "restore it", "nothing was restored"); err != nil {
			return err
		}
		aside, err := repair.Restore(ctx, c, re)
		for _, path := range aside {
			fmt.Fprintf(a.stderr, "castle: kept the previous state in %s\n", path)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "castle: restored serial %d of %s; `castle create %s` brings the stage "+
			"up to date\n", re.Serial, re.Stage, c.Config.Name)
		return nil
	})
	cmd := &cobra.Command{
		Use:   "restore CLUSTER STAGE",
		Short: "Restore a stage's state from a snapshot, or all states from a commit",
		Long: `Restore a stage's state from a snapshot or, with --errored, from the state that Terraform
could not write. castle locks the cluster, keeps the present state and prints its path.
It refuses a state of another lineage. Resources created since the snapshot are no
longer in the state. Asks for the cluster's name; without a terminal it requires --yes.

With --commit and without STAGE, the whole state directory goes back to a commit of the
store; castle state log lists them. This is a new commit, so that the same command undoes
it. Machines and other objects stay as they are; castle plan shows how they differ.`,
		Example: `  castle state restore blue metallb --snapshot 7
  castle state restore blue --commit 41`,
		Args: usage(func(cmd *cobra.Command, args []string) error {
			f := cmd.Flags()
			switch {
			case o.Errored && f.Changed("snapshot"):
				return errors.New("--errored cannot be combined with --snapshot")
			case !f.Changed("commit"):
				return cobra.ExactArgs(2)(cmd, args)
			case o.Errored || f.Changed("snapshot"):
				return errors.New("--commit cannot be combined with --snapshot or --errored")
			case len(args) != 1:
				return errors.New("--commit restores all stages: name the cluster and no stage")
			case commit < 1:
				return fmt.Errorf("--commit %d: commits begin with 1", commit)
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if commit > 0 { // without a checkout: the newest commit may be damaged
				return onPlace(a, func(ctx context.Context, c *cluster.Cluster) error {
					return restoreCommit(ctx, a, c, commit)
				})(cmd, args)
			}
			return restoreSnapshot(cmd, args)
		},
	}
	cmd.Flags().StringVar(&o.Snapshot, "snapshot", "newest",
		"the snapshot with this `SERIAL` or name, or newest")
	cmd.Flags().BoolVar(&o.Errored, "errored", false,
		"use the state that Terraform could not write, if it is newer")
	cmd.Flags().Int64Var(&commit, "commit", 0, "restore all states from the commit with this `NUMBER`")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	return cmd
}

// printRestore shows the changes of a restore.
func printRestore(w io.Writer, c *cluster.Cluster, re *repair.Restoration) {
	from := cmp.Or(textIf(re.Snapshot != "", "snapshot "+re.Snapshot),
		"the state that Terraform could not write")
	fmt.Fprintf(w, "Would restore in %s, stage %s:\n  now: %s\n  then: serial %d of %s (%s)\n", c.Name(),
		re.Stage, re.Present, re.Serial, localTime(re.Taken), from)
	writeRemarks(w, listIf("no longer in the state: ", re.Removed),
		listIf("in the state again: ", re.Restored))
}

func newStateForget(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget CLUSTER STAGE ADDRESS…",
		Short: "Remove resources from a stage's state without deleting them",
		Long: `Remove resources from a stage's state with Terraform's state rm. castle locks the
cluster and takes a snapshot first. The objects continue to exist; castle no longer
manages them. ADDRESS is that of a resource, with all its instances, or of a module.
For an object that a destroy has left over, it is the name that destroy printed (421,
local:snippets/user.yaml), and no later destroy checks it. castle refuses a state that
it cannot read. Asks for the cluster's name; without a terminal it requires --yes.`,
		Example: `  castle state forget blue machines \
    'module.nodes.proxmox_virtual_environment_vm.this["worker-02"]'`,
		Args: usage(cobra.MinimumNArgs(3)),
		RunE: a.onRecorded(a.progress, func(ctx context.Context, c *cluster.Cluster, args []string) error {
			f, err := repair.PrepareUntrack(c, args[0], args[1:])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, `Would remove from the state of %s, stage %s:
  %s
They continue to exist, and castle no longer manages them: destroy leaves them and create makes
new ones. castle finds and imports only a VM whose uuid proves it this cluster's.
`, c.Name(), f.Stage, strings.Join(f.Resources, "\n  "))
			if err := confirmCluster(a, c, "forget them", "nothing was forgotten"); err != nil {
				return err
			}
			if err := repair.Untrack(ctx, c, f); err != nil {
				return err
			}
			undo := fmt.Sprintf("; to undo: castle state restore %s %s --snapshot SERIAL (`castle state "+
				"show` lists the serials)", c.Config.Name, f.Stage)
			fmt.Fprintf(a.stderr, "castle: forgot %s of %s%s\n", count(len(f.Resources), "resource"), f.Stage,
				textIf(f.Restorable(), undo))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	return cmd
}
