package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/repair"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newState(a *app) *cobra.Command {
	return group("state", "Inspect and repair Terraform states",
		`Inspect the stages' Terraform states and the snapshots that castle takes before and
after every change (the newest 20 of each stage), and repair them. castle never shows
values. No valid configuration is required.`,
		newStateList(a), newStateShow(a), newStateRestore(a), newStateForget(a))
}

// openStates reads the recorded states of a cluster, or of one stage if it is named.
func openStates(a *app, args []string) (*cluster.Cluster, []repair.StageState, error) {
	c, err := a.openWith(cluster.Options{Cluster: args[0], Recorded: true})
	if err != nil {
		return nil, nil, err
	}
	states, err := repair.States(c, strings.Join(args[1:], ""))
	return c, states, err
}

func serial(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

func newStateList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list CLUSTER [STAGE]",
		Short: "List the stages with their states and snapshots",
		Long: `List the stages that have a state, with serial, lineage and number of resources, the
time of the last apply, the number of snapshots, and its problem, if it has one.
STAGE may be a layer.`,
		Args: a.cluster(cobra.MaximumNArgs(2)),
		RunE: func(_ *cobra.Command, args []string) error {
			c, states, err := openStates(a, args)
			if err != nil {
				return err
			}
			list := stateList{Cluster: c.Config.Name, Platform: c.Config.Platform, Stages: []stateLine{}}
			t := ui.NewTable(a.stdout)
			fmt.Fprintf(t, "layer\tstage\tserial\tlineage\tresources\tapplied\tsnapshots\t\n")
			for _, s := range states {
				list.Stages = append(list.Stages, stateLine{
					Name: s.Name, Layer: s.Layer, Serial: s.Serial, Lineage: s.Lineage,
					Resources: len(s.Resources),
					Applied:   s.Applied, Snapshots: len(s.Snapshots), Problem: s.Problem,
				})
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\n", s.Layer, s.Name, serial(s.Serial),
					cmp.Or(s.Lineage, "-"),
					len(s.Resources), localTime(s.Applied), len(s.Snapshots), oneLine(s.Problem))
			}
			return a.print(list, func() error {
				if len(states) == 0 {
					fmt.Fprintf(a.stderr, "castle: %s has no state of any stage\n", c.Name())
				}
				return t.Flush()
			})
		},
	}
}

// stateList is the JSON of `castle state list`.
type stateList struct {
	Cluster  string      `json:"cluster"`
	Platform string      `json:"platform"`
	Stages   []stateLine `json:"stages"`
}

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

func newStateShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show CLUSTER [STAGE]",
		Short: "Show the resources in a state, and its snapshots",
		Long: `Show the addresses of the resources in a stage's state, and its snapshots with serial
and time, the newest first. No values. STAGE may be a layer.`,
		Args: a.cluster(cobra.MaximumNArgs(2)),
		RunE: func(_ *cobra.Command, args []string) error {
			c, states, err := openStates(a, args)
			if err != nil {
				return err
			}
			details := struct {
				Cluster  string              `json:"cluster"`
				Platform string              `json:"platform"`
				Stages   []repair.StageState `json:"stages"`
			}{c.Config.Name, c.Config.Platform, states}
			return a.print(details, func() error {
				t := ui.NewTable(a.stdout)
				for _, s := range states {
					printState(t, s)
				}
				return t.Flush()
			})
		},
	}
}

func printState(t *tabwriter.Writer, s repair.StageState) {
	fmt.Fprintf(t, "%s/%s: serial %s, lineage %s\n", s.Layer, s.Name, serial(s.Serial),
		cmp.Or(s.Lineage, "-"))
	if s.Problem != "" {
		fmt.Fprintf(t, "  %s\n", strings.ReplaceAll(s.Problem, "\n", "\n  "))
	}
	for _, res := range s.Resources {
		note := ""
		switch {
		case res.Deposed:
			note = "deposed: replaced, not yet deleted"
		case res.Tainted:
			note = "tainted: created in part"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", res.Address, res.Provider, note)
	}
	for _, snap := range s.Snapshots {
		what := snap.Problem
		if what == "" {
			what = fmt.Sprintf("serial %d\t%s", snap.Serial, count(snap.Resources, "resource"))
		}
		fmt.Fprintf(t, "  snapshot %s\t%s\t%s\n", snap.Name, localTime(snap.Taken), what)
	}
}

func newStateRestore(a *app) *cobra.Command {
	o := repair.RestoreOptions{}
	yes := false
	cmd := &cobra.Command{
		Use:   "restore CLUSTER STAGE",
		Short: "Restore a stage's state from a snapshot",
		Long: `Restore a stage's state from a snapshot or, with --errored, from the state that Terraform
could not write. castle locks the cluster, keeps the present state and prints its path.
It refuses a state of another lineage. Resources created since the snapshot are no
longer in the state. Asks for the cluster's name; without a terminal it requires --yes.`,
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Errored && cmd.Flags().Changed("snapshot") {
				return usageError(cmd, fmt.Errorf("--errored cannot be combined with --snapshot"))
			}
			c, err := a.openWith(cluster.Options{Cluster: args[0], Reporter: a.progress(), Recorded: true})
			if err != nil {
				return err
			}
			o.Stage = args[1]
			re, err := repair.PrepareRestore(c, o)
			if err != nil {
				return err
			}
			if re.Same {
				fmt.Fprintf(a.stderr, "castle: %s: the state of %s already is this snapshot (serial %d); "+
					"nothing was changed\n",
					c.Name(), re.Stage, re.Serial)
				return nil
			}
			printRestore(a, c, re)
			if err := confirmCluster(a, c, "restore it", "nothing was restored", yes); err != nil {
				return err
			}
			aside, err := repair.Restore(cmd.Context(), c, re)
			for _, path := range aside {
				fmt.Fprintf(a.stderr, "castle: kept the previous state in %s\n", path)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "castle: restored serial %d of %s; `castle create %s` brings the stage "+
				"up to date\n",
				re.Serial, re.Stage, c.Config.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Snapshot, "snapshot", "newest",
		"the snapshot with this `SERIAL` or name, or newest")
	cmd.Flags().BoolVar(&o.Errored, "errored", false,
		"use the state that Terraform could not write, if it is newer")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// printRestore shows the changes of a restore.
func printRestore(a *app, c *cluster.Cluster, re *repair.Restoration) {
	from := "snapshot " + re.Snapshot
	if re.Snapshot == "" {
		from = "the state that Terraform could not write"
	}
	fmt.Fprintf(a.stderr, "Would restore in %s, stage %s:\n  now: %s\n  then: serial %d of %s (%s)\n",
		c.Name(), re.Stage, re.Present, re.Serial, localTime(re.Taken), from)
	if len(re.Removed) > 0 {
		fmt.Fprintf(a.stderr, "  no longer in the state: %s\n", strings.Join(re.Removed, ", "))
	}
	if len(re.Restored) > 0 {
		fmt.Fprintf(a.stderr, "  in the state again: %s\n", strings.Join(re.Restored, ", "))
	}
}

func newStateForget(a *app) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "forget CLUSTER STAGE ADDRESS…",
		Short: "Remove resources from a stage's state without deleting them",
		Long: `Remove resources from a stage's state with Terraform's state rm. castle locks the
cluster and takes a snapshot first. The objects continue to exist; castle no longer
manages them. ADDRESS is that of a resource, with all its instances, or of a module.
For an object that a destroy has left over, it is the name that destroy printed (421,
local:snippets/user.yaml), and no later destroy checks it. castle refuses a state that
it cannot read. Asks for the cluster's name; without a terminal it requires --yes.`,
		Example: `  castle state forget blue proxmox-talos \
    'module.nodes.proxmox_virtual_environment_vm.this["worker-02"]'`,
		Args: usage(cobra.MinimumNArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.openWith(cluster.Options{Cluster: args[0], Reporter: a.progress(), Recorded: true})
			if err != nil {
				return err
			}
			f, err := repair.PrepareUntrack(c, args[1], args[2:])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "Would remove from the state of %s, stage %s:\n", c.Name(), f.Stage)
			for _, res := range f.Resources {
				fmt.Fprintf(a.stderr, "  %s\n", res)
			}
			fmt.Fprint(a.stderr, "They continue to exist, and castle no longer manages them: destroy "+
				"leaves them and create makes\n"+
				"new ones. castle finds and imports only a VM that has this cluster's name and tags.\n")
			if err := confirmCluster(a, c, "forget them", "nothing was forgotten", yes); err != nil {
				return err
			}
			if err := repair.Untrack(cmd.Context(), c, f); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "castle: forgot %s of %s", count(len(f.Resources), "resource"), f.Stage)
			if f.Restorable() {
				fmt.Fprintf(a.stderr, "; to undo: castle state restore %s %s --snapshot SERIAL (`castle "+
					"state show` lists the serials)",
					c.Config.Name, f.Stage)
			}
			fmt.Fprintln(a.stderr)
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
