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
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/state"
)

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

// measured is a node with its own duration: a stage until its immediate gates are open, or its deferred
// gates.
type measured struct {
	stage *config.Stage
	late  bool
}

// measurable returns the nodes of the stages, in their order.
func measurable(stages []*config.Stage) []measured {
	var nodes []measured
	for _, s := range stages {
		nodes = append(nodes, measured{stage: s})
		if len(s.DeferredGates()) > 0 {
			nodes = append(nodes, measured{s, true})
		}
	}
	return nodes
}

// key names the node's span in a timeline; no stage has such a name.
func (m measured) key() string {
	if m.late {
		return m.stage.Name + " gates"
	}
	return m.stage.Name
}

// ready returns the node that completes a stage.
func ready(s *config.Stage) measured { return measured{s, len(s.DeferredGates()) > 0} }

func (m measured) needs() []measured {
	stages := m.stage.Needs
	var needs []measured
	if m.late {
		needs = append(needs, measured{stage: m.stage})
		stages = nil
		for _, g := range m.stage.DeferredGates() {
			stages = append(stages, g.Needs...)
		}
	}
	for _, s := range stages {
		needs = append(needs, ready(s))
	}
	return needs
}

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
		if events := applied.CreateEvents(dir.Run(id), configured); events != nil {
			return g.setRun(id, events, configured)
		}
	}
	return nil
}

func (g *Graph) setRun(id string, events []event.Event, cluster *config.Cluster) error {
	nodes := measurable(cluster.Stages)
	spans, weight := weigh(events, nodes)
	var first, last time.Time
	for _, s := range spans {
		if first.IsZero() || s.Started.Before(first) {
			first = s.Started
		}
		if s.Ended.After(last) {
			last = s.Ended
		}
	}
	path, length, err := graph.CriticalPath(nodes, measured.needs, weight)
	if err != nil {
		return err
	}
	g.Run = &Run{
		ID: id, Began: first, Seconds: seconds(last.Sub(first)),
		CriticalPath: []Step{}, CriticalSeconds: seconds(length),
	}
	for _, n := range nodes {
		if s := spans[n.key()]; s == nil || s.Result == event.ResultUpToDate {
			continue
		}
		stage := g.stage(n.stage.Name)
		if n.late {
			stage.GateSeconds = new(seconds(weight(n)))
		} else {
			stage.Seconds = new(seconds(weight(n)))
		}
	}
	g.markPath(path, weight)
	return nil
}

// weigh returns the spans of the nodes by their keys, and the duration of each node.
func weigh(events []event.Event, nodes []measured) (map[string]*event.Span, func(measured) time.Duration) {
	spans := map[string]*event.Span{}
	for _, s := range event.Timeline(splitDeferredGates(events, nodes)) {
		spans[s.Stage] = s
	}
	return spans, func(n measured) time.Duration {
		s := spans[n.key()]
		if s == nil {
			return 0
		}
		if s.Result == event.ResultSkipped || s.Result == event.ResultInterrupted {
			return s.Worked() // what it waited for afterwards has its own duration
		}
		return s.Ended.Sub(s.Started)
	}
}

// CriticalPath returns the chain of stages that took longest in a run of any kind and result. A destroy goes
// through the stages in reverse; of a recreate, the path is that of its create.
func CriticalPath(kind string, events []event.Event, cluster *config.Cluster) ([]Step, error) {
	nodes, needs := measurable(cluster.Stages), measured.needs
	if kind == "destroy" {
		dependents := map[measured][]measured{}
		for _, n := range nodes {
			for _, need := range n.needs() {
				dependents[need] = append(dependents[need], n)
			}
		}
		needs = func(n measured) []measured { return dependents[n] }
	} else {
		isReceipt := func(e event.Event) bool { return e.Kind == event.Receipted }
		events = events[max(0, slices.IndexFunc(events, isReceipt)):]
	}
	_, weight := weigh(events, nodes)
	path, _, err := graph.CriticalPath(nodes, needs, weight)
	var steps []Step
	for _, n := range path {
		if weight(n) > 0 {
			steps = append(steps, Step{Stage: n.stage.Name, Late: n.late,
				Seconds: seconds(weight(n))})
		}
	}
	return steps, err
}

// splitDeferredGates gives the waits for deferred gates their own spans. Such a wait is a stage's last
// step "gates", which may begin long after the apply.
func splitDeferredGates(events []event.Event, nodes []measured) []event.Event {
	began := map[string]int{} // the last step "gates" of a stage
	for i, e := range events {
		if e.Kind == event.StepStarted && e.Step == "gates" {
			began[e.Stage] = i
		}
	}
	events = slices.Clone(events)
	for _, n := range nodes {
		i, waited := began[n.stage.Name]
		for ; n.late && waited && i < len(events); i++ {
			if events[i].Stage == n.stage.Name {
				events[i].Stage = n.key()
			}
		}
	}
	return events
}

func (g *Graph) markPath(path []measured, weight func(measured) time.Duration) {
	for i, n := range path {
		g.Run.CriticalPath = append(g.Run.CriticalPath, Step{Stage: n.stage.Name, Late: n.late,
			Seconds: seconds(weight(n))})
		g.stage(n.stage.Name).Critical = true
		if i == 0 {
			continue
		}
		for j, e := range g.Edges {
			if e.From == path[i-1].stage.Name && e.To == n.stage.Name && (e.Late != "") == n.late {
				g.Edges[j].Critical = true
			}
		}
	}
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
