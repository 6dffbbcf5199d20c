// Package topology builds the graph of a cluster's stages: their edges, the durations
// of the last complete create, and its critical path.
package topology

import (
	"context"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
)

// Graph is the result of `castle graph`: the stages, the needs of each with their reasons, and the durations
// of the last complete create. Its JSON is stable for scripts: fields may be added, none changes its meaning
// (docs/graph.md).
type Graph struct {
	Cluster  string  `json:"cluster"`
	Platform string  `json:"platform"`
	Stages   []Stage `json:"stages"` // by layer, and inside a layer as cluster.hcl lists them
	Edges    []Edge  `json:"edges"`
	Run      *Run    `json:"run"` // null without a complete create
}

// Stage is one stage of a Graph.
type Stage struct {
	Name    string `json:"name"`
	Layer   string `json:"layer"`
	Source  string `json:"source"`
	Summary string `json:"summary"`
	Gates   []Gate `json:"gates"`
	// Seconds is the time that the run took to make it ready without its late gates. It is null without a
	// run, and where the run found no changes.
	Seconds     *float64 `json:"seconds"`
	GateSeconds *float64 `json:"late_gate_seconds,omitempty"` // how long it waited for those
	Critical    bool     `json:"critical"`                    // on the critical path
}

// Gate is a gate of a stage. castle checks a late gate only when the other stages that it needs are ready;
// its own stage does not wait for them.
type Gate struct {
	Name string `json:"name"`
	Late bool   `json:"late"`
}

// Edge reports that To, or one late gate of To, waits until From is applied and all Gates of From are open.
type Edge struct {
	From       string   `json:"from"`
	To         string   `json:"to"`
	Late       string   `json:"late_gate,omitempty"` // the gate of To that waits; empty: the whole stage does
	Values     []string `json:"values"`              // the outputs of From that flow: "platform.vip"
	Needs      bool     `json:"needs"`               // `needs` names From's layer
	Connection bool     `json:"connection"`          // To reaches the cluster through From's outputs
	Gates      []string `json:"gates"`
	Critical   bool     `json:"critical"` // on the critical path
}

// Build returns the graph of the cluster that o names. It reads configuration and journals, takes no lock
// and makes no state directory.
func Build(ctx context.Context, o cluster.Options) (*Graph, error) {
	configured, err := o.Load()
	if err != nil {
		return nil, err
	}
	g := &Graph{Cluster: configured.Name, Platform: configured.Platform, Stages: []Stage{}, Edges: []Edge{}}
	for _, s := range configured.Stages {
		stage := Stage{Name: s.Name, Layer: s.Layer, Source: s.Source, Summary: s.Summary, Gates: []Gate{}}
		g.addEdges(s.Edges(), s, "")
		for _, own := range s.Gates {
			late := len(own.Needs) > 0
			stage.Gates = append(stage.Gates, Gate{own.Name(), late})
			g.addEdges(own.Edges(), s, own.Name())
		}
		g.Stages = append(g.Stages, stage)
	}
	return g, g.measure(ctx, o, configured)
}

// addEdges adds the edges to a stage, or to one late gate of it.
func (g *Graph) addEdges(edges []config.Edge, to *config.Stage, late string) {
	for _, e := range edges {
		edge := Edge{
			From: e.From.Name, To: to.Name, Late: late, Values: append([]string{}, e.Values...),
			Needs: e.Ordered, Connection: e.Connects, Gates: []string{},
		}
		for _, own := range e.From.Gates {
			edge.Gates = append(edge.Gates, own.Name())
		}
		g.Edges = append(g.Edges, edge)
	}
}

// stage returns the stage of a name.
func (g *Graph) stage(name string) *Stage {
	i := slices.IndexFunc(g.Stages, func(s Stage) bool { return s.Name == name })
	return &g.Stages[i]
}
