package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/drawing"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/operation/topology"
	"github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newGraph(a *app) *cobra.Command {
	flux := false
	cmd := a.valueFlags(&cobra.Command{
		Use:   "graph CLUSTER",
		Short: "Show the dependency graph and the critical path of the last run",
		Long: `Show the stages of a cluster by layer, their dependencies with the reason for each,
and their gates: a dependent starts when all gates of a stage are open. A deferred
gate waits for further stages after its own stage was applied.

Durations are those of the newest successful create of all stages that applied
something. The critical path is the chain of stages that took longest in it. The
command locks and changes nothing, and contacts nothing but the store of the states,
if there is one.

--flux shows the Kustomizations and HelmReleases of the running cluster instead, in the
order in which they became ready, and the chain that made it take that long.`,
		Example: `  castle graph blue
  castle graph blue --flux
  castle graph blue -o svg > blue.svg
  castle graph blue -o dot | dot -Tpng > blue.png`,
		Args:        a.oneCluster(),
		Annotations: map[string]string{formatsKey: "text dot mermaid json svg"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if flux {
				return a.onCluster(nil, a.convergence)(cmd, args)
			}
			o, err := a.complete(cluster.Options{Cluster: args[0]})
			if err != nil {
				return err
			}
			g, err := topology.Build(cmd.Context(), o)
			if err != nil {
				return err
			}
			switch a.output {
			case "dot":
				return newDrawing(g).WriteDot(values(a))
			case "mermaid":
				return newDrawing(g).WriteMermaid(values(a))
			case "svg":
				return newDrawing(g).WriteSVG(values(a))
			}
			return a.print(g, func(w io.Writer) { printGraph(w, g, ui.Columns(a.stdout, 120)) })
		},
	})
	cmd.Flags().BoolVar(&flux, "flux", false, "show Flux's objects in the running cluster, as text or json")
	// It replaces the shared flag.
	cmd.Flags().StringVarP(&a.output, "output", "o", "text", "output format: text, dot, mermaid, json or svg")
	return cmd
}

// convergence prints Flux's objects in the order in which they became ready.
func (a *app) convergence(ctx context.Context, c *cluster.Cluster, _ []string) error {
	if a.output != "text" && a.output != "json" {
		return &cluster.UsageError{Message: "--flux: -o " + a.output + ": must be text or json"}
	}
	steps, err := status.Convergence(ctx, c)
	if err != nil {
		return err
	}
	return a.print(steps, func(w io.Writer) { report.WriteFlux(w, steps) })
}

// duration formats a duration, "" if there is none.
func duration(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return report.Took(*seconds)
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
	n.Label = textIf(len(s.Gates) > 0, count(len(s.Gates), "gate"))
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
	reasons := textIf(e.Connection, "; connects to the cluster") + listIf("; reads ", e.Values) +
		textIf(e.Needs, "; needs")
	return fmt.Sprintf("%s%s waits for %s: %s%s", e.To, textIf(e.Late != "", "'s gate "+e.Late), e.From,
		strings.TrimPrefix(reasons, "; "), listIf("\ngates: ", e.Gates))
}

// indent is the column at which a stage's dependencies begin.
const indent = 33

// printGraph writes a paragraph per layer, in it each stage with its dependencies and gates.
func printGraph(w io.Writer, g *topology.Graph, columns int) {
	layer, columns := "", max(columns, 2*indent)
	for _, s := range g.Stages {
		if s.Layer != layer {
			layer = s.Layer
			fmt.Fprintln(w, layer)
		}
		head := fmt.Sprintf("%1s %-20s %8s", textIf(s.Critical, "*"), s.Name, duration(s.Seconds))
		for _, line := range graphLines(g, s) {
			for _, part := range wrap(line, columns-indent) {
				fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-*s%s", indent, head, part), " "))
				head = ""
			}
		}
		if head != "" {
			fmt.Fprintln(w, strings.TrimRight(head, " "))
		}
	}
	fmt.Fprintln(w)
	for _, line := range runSummary(g) {
		fmt.Fprintln(w, strings.Join(wrap(line, columns), "\n"))
	}
	if g.Run != nil {
		fmt.Fprintln(w, "* on the critical path")
	}
}

// graphLines lists the dependencies of a stage by reason, and its gates.
func graphLines(g *topology.Graph, s topology.Stage) (lines []string) {
	add := func(what string, names []string) {
		if len(names) > 0 {
			lines = append(lines, listIf(what+" ", names))
		}
	}
	// before adds the stages that s, or its deferred gate late, waits for with this reason.
	before := func(what, late string, reason func(topology.Edge) bool) {
		var names []string
		for _, e := range g.Edges {
			if e.To == s.Name && e.Late == late && reason(e) {
				names = append(names, e.From)
			}
		}
		add(what, names)
	}
	before("connects to", "", func(e topology.Edge) bool { return e.Connection })
	before("reads", "", carriesValues)
	before("needs", "", func(e topology.Edge) bool { return e.Needs })
	var gates []string
	for _, gate := range s.Gates {
		if !gate.Late {
			gates = append(gates, gate.Name)
		}
	}
	add("gates", gates)
	for _, gate := range s.Gates {
		if gate.Late {
			text := strings.TrimSuffix("deferred gate "+gate.Name+" "+duration(s.GateSeconds), " ")
			before(text+", after", gate.Name, func(topology.Edge) bool { return true })
		}
	}
	return lines
}

// carriesValues reports whether a stage reads outputs along e. Those that castle connects with do not count.
func carriesValues(e topology.Edge) bool {
	return slices.ContainsFunc(e.Values, func(v string) bool {
		return !e.Connection || v != "platform.kubeconfig" && v != "platform.talosconfig"
	})
}

// wrap breaks a text between words, and indents every line but the first.
func wrap(s string, columns int) []string {
	var lines []string
	line := ""
	for word := range strings.SplitSeq(s, " ") {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line+" "+word) > columns:
			lines = append(lines, line)
			line = "  " + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
