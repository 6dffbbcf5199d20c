package topology

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
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
	// LayeredSeconds is how long the same steps take in the order of TazLab's create.sh:
	// see layerByLayer. Like CriticalSeconds it leaves out the time between stages. It is
	// null if a stage was up to date, as its duration in a script was not measured.
	LayeredSeconds *float64 `json:"layered_seconds"`
}

// Step is one step of the critical path: a stage, or the wait for its deferred gates.
type Step struct {
	Stage   string  `json:"stage"`
	Late    bool    `json:"late_gates"`
	Seconds float64 `json:"seconds"`
}

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
		if len(run.DeferredGates(s)) > 0 {
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
func ready(s *config.Stage) measured { return measured{s, len(run.DeferredGates(s)) > 0} }

func (m measured) needs() []measured {
	stages := m.stage.Needs
	var needs []measured
	if m.late {
		needs = append(needs, measured{stage: m.stage})
		stages = nil
		for _, g := range run.DeferredGates(m.stage) {
			stages = append(stages, g.Needs...)
		}
	}
	for _, s := range stages {
		needs = append(needs, ready(s))
	}
	return needs
}

// measure adds the durations of the last run and its critical path.
func (g *Graph) measure(o cluster.Options, cluster *config.Cluster) error {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil // nowhere to keep state: there has been no run
	}
	known, err := state.Clusters(root)
	if err != nil || !slices.Contains(known, cluster.Name+"/"+cluster.Platform) {
		return err
	}
	dir, err := state.Open(root, cluster.Name, cluster.Platform)
	if err != nil {
		return err
	}
	id, events, err := lastCreate(dir, cluster)
	if err != nil || id == "" {
		return err
	}
	return g.setRun(id, events, cluster)
}

// lastCreate returns the run that a graph's durations come from and its events, without the destroy of a
// recreate. It skips unreadable journals, as such a run did not end well.
func lastCreate(dir *state.Dir, cluster *config.Cluster) (id string, events []event.Event, err error) {
	ids, err := dir.Runs()
	if err != nil {
		return "", nil, err
	}
	for _, id := range ids {
		events, err := dir.Run(id).Events()
		if err != nil || len(events) == 0 {
			continue
		}
		first, last := events[0], events[len(events)-1]
		kind, _, _ := strings.Cut(first.Text, " ")
		if first.Kind != event.RunStarted || kind != "create" && kind != "recreate" ||
			last.Kind != event.RunEnded ||
			last.Text != "ok" {
			continue
		}
		isReceipt := func(e event.Event) bool { return e.Kind == event.Receipted }
		if destroyed := slices.IndexFunc(events, isReceipt); destroyed >= 0 {
			events = events[destroyed:]
		}
		if createdAll(events, cluster) {
			return id, events, nil
		}
	}
	return "", nil, nil
}

// createdAll reports whether all stages were ready in the end, and some not before.
func createdAll(events []event.Event, cluster *config.Cluster) bool {
	ready, created := map[string]bool{}, false
	for _, e := range events {
		created = created || e.Kind == event.StageReady
		ready[e.Stage] = ready[e.Stage] || e.Kind == event.StageReady || e.Kind == event.StageUpToDate
	}
	return created &&
		!slices.ContainsFunc(cluster.Stages, func(s *config.Stage) bool { return !ready[s.Name] })
}

func (g *Graph) setRun(id string, events []event.Event, cluster *config.Cluster) error {
	nodes := measurable(cluster.Stages)
	spans := map[string]*event.Span{}
	run := &Run{ID: id, CriticalPath: []Step{}}
	var first, last time.Time
	for _, s := range event.Timeline(splitDeferredGates(events, cluster)) {
		spans[s.Stage] = s
		if first.IsZero() || s.Started.Before(first) {
			first = s.Started
		}
		if s.Ended.After(last) {
			last = s.Ended
		}
	}
	run.Began, run.Seconds = first, seconds(last.Sub(first))
	weight := func(n measured) time.Duration {
		if s := spans[n.key()]; s != nil {
			return s.Ended.Sub(s.Started)
		}
		return 0
	}
	path, length, err := graph.CriticalPath(nodes, measured.needs, weight)
	if err != nil {
		return err
	}
	run.CriticalSeconds = seconds(length)
	idle := func(n measured) bool {
		return spans[n.key()] == nil || spans[n.key()].Result == event.ResultUpToDate
	}
	if !slices.ContainsFunc(nodes, idle) {
		layered, err := layerByLayer(nodes, weight)
		if err != nil {
			return err
		}
		took := seconds(layered)
		run.LayeredSeconds = &took
	}
	g.Run = run
	for _, n := range nodes {
		if idle(n) {
			continue
		}
		took := seconds(weight(n))
		if n.late {
			g.stage(n.stage.Name).GateSeconds = &took
		} else {
			g.stage(n.stage.Name).Seconds = &took
		}
	}
	g.markPath(path, weight)
	return nil
}

// splitDeferredGates gives the waits for deferred gates their own spans. Such a wait is a stage's last
// step "gates", which may begin long after the apply.
func splitDeferredGates(events []event.Event, cluster *config.Cluster) []event.Event {
	events = slices.Clone(events)
	for _, s := range cluster.Stages {
		if len(run.DeferredGates(s)) == 0 {
			continue
		}
		waited := -1
		for i, e := range events {
			if e.Stage == s.Name && e.Kind == event.StepStarted && e.Step == "gates" {
				waited = i
			}
		}
		for i := range events {
			if waited >= 0 && i >= waited && events[i].Stage == s.Name {
				events[i].Stage = measured{s, true}.key()
			}
		}
	}
	return events
}

func (g *Graph) markPath(path []measured, weight func(measured) time.Duration) {
	for i, n := range path {
		g.Run.CriticalPath = append(g.Run.CriticalPath, Step{n.stage.Name, n.late, seconds(weight(n))})
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
