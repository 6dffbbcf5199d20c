// Package topology builds the graph of a cluster's stages: their edges, the durations
// of the last complete create, and its critical path.
package topology

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Graph is the result of `castle graph`: the stages, the needs of each with their reasons, and the durations
// of the last complete create. Its JSON is stable: fields may be added, none changes meaning (docs/graph.md).
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

// Run is the run that a Graph's durations come from: the newest successful create or recreate of all
// stages that changed something.
type Run struct {
	ID      string    `json:"id"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"` // from the first stage's start to the last one's end
	// CriticalPath is the chain that took longest: nothing else makes the run shorter.
	CriticalPath []Step `json:"critical_path"`
	// CriticalSeconds is the sum of its steps. The rest of the run is spent between
	// stages, mostly on preflights; a step includes its wait for --parallelism.
	CriticalSeconds float64 `json:"critical_seconds"`
}

// Step is one step of the critical path: a stage, or the wait for its deferred gates.
type Step = report.Step

// measure adds the durations of the last run and its critical path.
func (g *Graph) measure(ctx context.Context, o cluster.Options, configured *config.Cluster) error {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil // nowhere to keep state: there has been no run
	}
	shared, err := cluster.OpenStore(ctx, o)
	if err != nil {
		return err
	}
	defer shared.Close() //nolint:errcheck // all was read
	known, err := shared.Clusters(ctx, root)
	if err != nil || !slices.Contains(known, configured.Name+"/"+configured.Platform) {
		return err
	}
	dir, _, _, err := shared.OpenDir(ctx, root, configured.Name, configured.Platform)
	if err != nil {
		return err
	}
	ids, err := dir.Runs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if create := history.Create(dir.Run(id), configured.Stages); create != nil {
			return g.setRun(id, create)
		}
	}
	return nil
}

func (g *Graph) setRun(id string, create *history.Part) error {
	path, length, err := create.CriticalPath()
	if err != nil {
		return err
	}
	var first, last time.Time
	for _, s := range create.Stages {
		if !s.Selected { // it is not configured any more
			continue
		}
		if first.IsZero() || s.Started.Before(first) {
			first = s.Started
		}
		if s.Ended.After(last) {
			last = s.Ended
		}
		if s.Result == event.ResultUpToDate {
			continue
		}
		stage := g.stage(s.Stage)
		stage.Seconds = new(seconds(create.Took(create.Node(s, false))))
		if s.LateWait() != nil {
			stage.GateSeconds = new(seconds(create.Took(create.Node(s, true))))
		}
	}
	g.Run = &Run{ID: id, Began: first, Seconds: seconds(last.Sub(first)), CriticalPath: steps(create, path),
		CriticalSeconds: seconds(length)}
	for i, n := range path {
		g.stage(n.Stage).Critical = true
		for j, e := range g.Edges {
			if i > 0 && e.From == path[i-1].Stage && e.To == n.Stage && (e.Late != "") == n.Late {
				g.Edges[j].Critical = true
			}
		}
	}
	return nil
}

// steps returns the steps of a critical path.
func steps(p *history.Part, path []history.Subject) []Step {
	all := []Step{}
	for _, n := range path {
		all = append(all, Step{Stage: n.Stage, Late: n.Late, Seconds: seconds(p.Took(n))})
	}
	return all
}

// CriticalPath returns the chain of stages that took longest in a run of any kind and result. A destroy goes
// through the stages in reverse; of a recreate, the path is that of its create.
func CriticalPath(kind string, events []event.Event, cluster *config.Cluster) ([]Step, error) {
	part := history.PartOf(kind, cluster.Stages, events)
	path, _, err := part.CriticalPath()
	path = slices.DeleteFunc(path, func(n history.Subject) bool { return part.Took(n) == 0 })
	return steps(part, path), err
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// Lines describe the run and its critical path. `castle graph` and a rehearsal print them.
func (r *Run) Lines() []string {
	path := (&report.Report{CriticalPath: r.CriticalPath}).Path()
	return []string{
		fmt.Sprintf("Durations of run %s, which took %s.", r.ID, report.Took(r.Seconds)),
		fmt.Sprintf("Critical path, %s: %s", report.Took(r.CriticalSeconds), path),
	}
}
