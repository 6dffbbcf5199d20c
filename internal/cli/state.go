package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newState(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Look at the Terraform states, and put them right",
		Long: `Look at the stages' Terraform states and the snapshots that castle takes of them
before and after every change (the newest 20 of each stage), and put them right.
Values are never shown. Works without a valid configuration.`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no `castle state %s`", args[0])
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStateList(a), newStateShow(a), newStateRestore(a), newStateForget(a))
	return cmd
}

func newStateList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list CLUSTER [STAGE]",
		Short: "List the stages with what their states and snapshots are",
		Long: `List the stages that have a state, with its serial, lineage and number of
resources, when it was last applied, how many snapshots there are of it, and
what is wrong with it. STAGE may be a layer.`,
		Args: a.clusterAndStage(),
		RunE: func(_ *cobra.Command, args []string) error {
			c, states, err := a.states(args)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(listed(c, states))
			}
			t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(t, "layer\tstage\tserial\tlineage\tresources\tapplied\tsnapshots\t\n")
			for _, s := range states {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\n", s.Layer, s.Name, serial(s.Serial), orDash(s.Lineage),
					len(s.Resources), moment(s.Applied), len(s.Snapshots), strings.Join(strings.Fields(s.Problem), " "))
			}
			return t.Flush()
		},
	}
}

// stateList is `castle state list` as JSON.
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

func listed(c *castle.Castle, states []castle.StageState) stateList {
	list := stateList{Cluster: c.Cluster().Name, Platform: c.Cluster().Platform, Stages: []stateLine{}}
	for _, s := range states {
		list.Stages = append(list.Stages, stateLine{
			Name: s.Name, Layer: s.Layer, Serial: s.Serial, Lineage: s.Lineage, Resources: len(s.Resources),
			Applied: s.Applied, Snapshots: len(s.Snapshots), Problem: s.Problem,
		})
	}
	return list
}

// stateDetails is `castle state show` as JSON.
type stateDetails struct {
	Cluster  string              `json:"cluster"`
	Platform string              `json:"platform"`
	Stages   []castle.StageState `json:"stages"`
}

func newStateShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show CLUSTER [STAGE]",
		Short: "Show which resources a state knows, and its snapshots",
		Long: `Show the addresses of the resources that a stage's state knows, and its snapshots
with their serials and times, the newest first. No values. STAGE may be a layer.`,
		Args: a.clusterAndStage(),
		RunE: func(_ *cobra.Command, args []string) error {
			c, states, err := a.states(args)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(stateDetails{Cluster: c.Cluster().Name, Platform: c.Cluster().Platform, Stages: states})
			}
			t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, s := range states {
				showState(t, s)
			}
			return t.Flush()
		},
	}
}

func showState(t *tabwriter.Writer, s castle.StageState) {
	fmt.Fprintf(t, "%s/%s: serial %s, lineage %s\n", s.Layer, s.Name, serial(s.Serial), orDash(s.Lineage))
	if s.Problem != "" {
		fmt.Fprintf(t, "  %s\n", strings.ReplaceAll(s.Problem, "\n", "\n  "))
	}
	for _, res := range s.Resources {
		note := ""
		switch {
		case res.Deposed:
			note = "deposed: replaced, not yet deleted"
		case res.Tainted:
			note = "tainted: not wholly made"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", res.Address, res.Provider, note)
	}
	for _, snap := range s.Snapshots {
		what := snap.Problem
		if what == "" {
			what = fmt.Sprintf("serial %d\t%s", snap.Serial, count(snap.Resources, "resource"))
		}
		fmt.Fprintf(t, "  snapshot %s\t%s\t%s\n", snap.Name, moment(snap.Taken), what)
	}
}

// states reads what the state directory holds of the cluster, and of the stage if one is named.
func (a *app) states(args []string) (*castle.Castle, []castle.StageState, error) {
	a.asking()
	c, err := a.openAs(castle.Options{Cluster: args[0], Recorded: true})
	if err != nil {
		return nil, nil, err
	}
	name := ""
	if len(args) == 2 {
		name = args[1]
	}
	states, err := c.States(name)
	return c, states, err
}

func (a *app) clusterAndStage() cobra.PositionalArgs {
	return usage(func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return errors.New("needs a cluster" + a.known())
		case len(args) > 2:
			return fmt.Errorf("needs a cluster and at most one stage, not %d", len(args)-1)
		}
		return nil
	})
}

func serial(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func moment(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}
