package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

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
			if len(states) == 0 {
				fmt.Fprintf(a.stderr, "castle: %s has no state of any stage\n", c.Name())
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
