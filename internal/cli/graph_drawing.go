package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/drawing"
)

// drawn makes a drawing of a graph: layers are groups, stages are nodes with
// their gates as lines, and what leaves a stage carries the gates' number.
func drawn(g *castle.Graph) drawing.Drawing {
	d := drawing.Drawing{Title: g.Cluster + "/" + g.Platform, Notes: graphRun(g), Legend: legend(g)}
	for _, s := range g.Stages {
		if n := len(d.Groups); n == 0 || d.Groups[n-1].Name != s.Layer {
			d.Groups = append(d.Groups, drawing.Group{Name: s.Layer})
		}
		own := &d.Groups[len(d.Groups)-1]
		own.Nodes = append(own.Nodes, drawnStage(s))
	}
	for _, e := range g.Edges {
		d.Edges = append(d.Edges, drawing.Edge{
			From: e.From, To: e.To, Line: e.Late, Style: styleOf(e), Hint: edgeHint(e), Marked: e.Critical,
		})
	}
	return d
}

func drawnStage(s castle.GraphStage) drawing.Node {
	n := drawing.Node{Name: s.Name, Note: took(s.Seconds), Hint: strings.TrimSuffix(s.Source+": "+s.Summary, ": "), Marked: s.Critical}
	if len(s.Gates) > 0 {
		n.Label = count(len(s.Gates), "gate")
	}
	for _, gate := range s.Gates {
		n.Lines = append(n.Lines, drawing.Line{Text: gate.Name, Late: gate.Late})
	}
	if s.GateSeconds != nil {
		n.Note = strings.TrimPrefix(n.Note+" + "+took(s.GateSeconds), " + ")
	}
	return n
}

// styleOf draws an edge as the strongest of its reasons.
func styleOf(e castle.GraphEdge) drawing.Style {
	switch {
	case e.Late != "":
		return drawing.Dashed
	case carries(e):
		return drawing.Solid
	case e.Needs:
		return drawing.Dotted
	}
	return drawing.Thin
}

// legend explains the styles that occur.
func legend(g *castle.Graph) []drawing.Entry {
	all := []drawing.Entry{
		{Style: drawing.Solid, Text: "values flow"},
		{Style: drawing.Thin, Text: "connects to the cluster"},
		{Style: drawing.Dotted, Text: "needs, no value flows"},
		{Style: drawing.Dashed, Text: "judged late: only this gate waits"},
	}
	all = slices.DeleteFunc(all, func(x drawing.Entry) bool {
		return !slices.ContainsFunc(g.Edges, func(e castle.GraphEdge) bool { return styleOf(e) == x.Style })
	})
	if g.Run != nil {
		all = append(all, drawing.Entry{Marked: true, Text: "critical path"})
	}
	return all
}

func edgeHint(e castle.GraphEdge) string {
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
		hint += "\nopen before: " + strings.Join(e.Gates, ", ")
	}
	return hint
}
