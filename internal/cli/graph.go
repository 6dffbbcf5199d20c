package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newGraph(a *app) *cobra.Command {
	const ways = "text dot mermaid json svg"
	cmd := &cobra.Command{
		Use:   "graph CLUSTER",
		Short: "Show what waits for what, and where the last run's time went",
		Long: `Show the stages of a cluster by layer, what each waits for and why, and the gates
that must be open before: what leaves a stage waits for all of its gates. A late
gate waits for further stages while its own stage is applied already.

Durations are those of the newest create of all stages that ended well and found
something to do; the critical path is the chain of stages that took longest in
it, and is compared with what a script takes that goes layer by layer. Nothing
is asked, locked or changed.`,
		Example: `  castle graph blue
  castle graph blue -o svg > blue.svg
  castle graph blue -o dot | dot -Tpng > blue.png`,
		Args:        a.oneCluster(),
		Annotations: map[string]string{outputs: ways},
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := a.complete(castle.Options{Cluster: args[0]})
			if err != nil {
				return err
			}
			g, err := o.Graph()
			if err != nil {
				return err
			}
			return a.printGraph(g)
		},
	}
	// In the place of the flag that all commands share.
	cmd.Flags().StringVarP(&a.output, "output", "o", "text", "how to print: text, dot, mermaid, json or svg")
	a.valueFlags(cmd)
	return cmd
}

func (a *app) printGraph(g *castle.Graph) error {
	switch a.output {
	case "json":
		return a.printJSON(g)
	case "dot":
		return drawn(g).WriteDot(a.stdout)
	case "mermaid":
		return drawn(g).WriteMermaid(a.stdout)
	case "svg":
		return drawn(g).WriteSVG(a.stdout)
	}
	_, err := io.WriteString(a.stdout, graphText(g, a.columns()))
	return err
}

// took is a duration as it is shown, nothing where there is none.
func took(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return castle.Took(*seconds)
}

// graphRun says which run the durations are of, and what they add up to.
func graphRun(g *castle.Graph) []string {
	if g.Run == nil {
		return []string{"No durations and no critical path: there is no create of all stages that raised something and ended well."}
	}
	return g.Run.Lines()
}
