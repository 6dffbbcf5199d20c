package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/drawing"
	"github.com/ephemeral-castle/castle/internal/operation/topology"
)

func newGraph(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "graph CLUSTER",
		Short: "Show the dependency graph and the critical path of the last run",
		Long: `Show the stages of a cluster by layer, their dependencies with the reason for each,
and their gates: a dependent starts when all gates of a stage are open. A deferred
gate waits for further stages after its own stage was applied.

Durations are those of the newest successful create of all stages that applied
something. The critical path is the chain of stages that took longest in it; castle
compares it with a script that goes layer by layer. The command locks, contacts and
changes nothing.`,
		Example: `  castle graph blue
  castle graph blue -o svg > blue.svg
  castle graph blue -o dot | dot -Tpng > blue.png`,
		Args:        a.oneCluster(),
		Annotations: map[string]string{formatsKey: "text dot mermaid json svg"},
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := a.complete(cluster.Options{Cluster: args[0]})
			if err != nil {
				return err
			}
			g, err := topology.Build(o)
			if err != nil {
				return err
			}
			switch a.output {
			case "dot":
				return newDrawing(g).WriteDot(a.stdout)
			case "mermaid":
				return newDrawing(g).WriteMermaid(a.stdout)
			case "svg":
				return newDrawing(g).WriteSVG(a.stdout)
			}
			return a.print(g, func() error {
				_, err := io.WriteString(a.stdout, graphText(g, a.columns()))
				return err
			})
		},
	}
	// It replaces the shared flag.
	cmd.Flags().StringVarP(&a.output, "output", "o", "text", "output format: text, dot, mermaid, json or svg")
	a.valueFlags(cmd)
	return cmd
}

// duration formats a duration, "" if there is none.
func duration(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return topology.Took(*seconds)
}

// runSummary names the run that the durations are from, and sums them up.
func runSummary(g *topology.Graph) []string {
	if g.Run == nil {
		return []string{"No durations and no critical path: no create of all stages has applied anything " +
			"and succeeded yet."}
	}
	return g.Run.Lines()
}

// newDrawing draws a graph: layers are groups, stages are nodes with their gates as lines.
func newDrawing(g *topology.Graph) drawing.Drawing {
	d := drawing.Drawing{Title: g.Cluster + "/" + g.Platform, Notes: runSummary(g), Legend: legend(g)}
	for _, s := range g.Stages {
		if n := len(d.Groups); n == 0 || d.Groups[n-1].Name != s.Layer {
			d.Groups = append(d.Groups, drawing.Group{Name: s.Layer})
		}
		own := &d.Groups[len(d.Groups)-1]
		own.Nodes = append(own.Nodes, stageNode(s))
	}
	for _, e := range g.Edges {
		d.Edges = append(d.Edges, drawing.Edge{
			From: e.From, To: e.To, Line: e.Late, Style: edgeStyle(e), Hint: edgeHint(e), Marked: e.Critical,
		})
	}
	return d
}

func stageNode(s topology.Stage) drawing.Node {
	hint := strings.TrimSuffix(s.Source+": "+s.Summary, ": ")
	n := drawing.Node{Name: s.Name, Note: duration(s.Seconds), Hint: hint, Marked: s.Critical}
	if len(s.Gates) > 0 {
		n.Label = count(len(s.Gates), "gate")
	}
	for _, gate := range s.Gates {
		n.Lines = append(n.Lines, drawing.Line{Text: gate.Name, Deferred: gate.Late})
	}
	if s.GateSeconds != nil {
		n.Note = strings.TrimPrefix(n.Note+" + "+duration(s.GateSeconds), " + ")
	}
	return n
}

// edgeStyle shows the strongest of an edge's reasons.
func edgeStyle(e topology.Edge) drawing.Style {
	switch {
	case e.Late != "":
		return drawing.Dashed
	case carriesValues(e):
		return drawing.Solid
	case e.Needs:
		return drawing.Dotted
	}
	return drawing.Thin
}

// legend explains the styles in use.
func legend(g *topology.Graph) []drawing.Entry {
	all := []drawing.Entry{
		{Style: drawing.Solid, Text: "reads outputs"},
		{Style: drawing.Thin, Text: "connects to the cluster"},
		{Style: drawing.Dotted, Text: "needs, reads no output"},
		{Style: drawing.Dashed, Text: "deferred gate: only this gate waits"},
	}
	all = slices.DeleteFunc(all, func(x drawing.Entry) bool {
		return !slices.ContainsFunc(g.Edges, func(e topology.Edge) bool { return edgeStyle(e) == x.Style })
	})
	if g.Run != nil {
		all = append(all, drawing.Entry{Marked: true, Text: "critical path"})
	}
	return all
}

func edgeHint(e topology.Edge) string {
	var reasons []string
	if e.Connection {
		reasons = append(reasons, "connects to the cluster")
	}
	if len(e.Values) > 0 {
		reasons = append(reasons, "reads "+strings.Join(e.Values, ", "))
	}
	if e.Needs {
		reasons = append(reasons, "needs")
	}
	to := e.To
	if e.Late != "" {
		to += "'s gate " + e.Late
	}
	hint := fmt.Sprintf("%s waits for %s: %s", to, e.From, strings.Join(reasons, "; "))
	if len(e.Gates) > 0 {
		hint += "\ngates: " + strings.Join(e.Gates, ", ")
	}
	return hint
}
