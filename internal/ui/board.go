package ui

import (
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// board is what a run's events so far add up to. Everything that is printed about work in progress comes
// from it: the view of a terminal, and the reminders of plain lines.
type board struct {
	title   string // create blue/proxmox
	command string // of the selection; empty: the run has none
	began   time.Time
	stages  []*stage // the selected ones, then others as they appear
	byName  map[string]*stage
	took    map[part]time.Duration
}

// stage is one stage of a board.
type stage struct {
	layer, name      string
	needs, gatesNeed []string
	selected         bool
	result           event.Kind // that settled it; empty before
	began            time.Time  // zero before its first step
	apart            bool       // it has had its main part, and its deferred gates are left
	steps            []*step    // in progress, the oldest first
	last             time.Time  // the end of its last step
	lastStep         string
	gatesBegan       time.Time // of the last wait for gates
	partEnd          time.Time // the end of the step before that
	retry            *event.Event
}

// step is a step in progress.
type step struct {
	started   event.Event
	total     int           // of gates or resources; 0: not known
	done      int           // of them
	resources []event.Event // in progress, the oldest first
	changed   map[string]bool
	gates     []*closedGate // the oldest first
}

// closedGate is a gate that has not opened yet.
type closedGate struct {
	name    string
	began   time.Time // of the wait
	timeout time.Duration
	reason  string
	since   time.Time // reason began
}

// settling holds the events after which a stage has nothing left to do.
var settling = []event.Kind{event.StageReady, event.StageUpToDate, event.StageGone, event.StageFailed,
	event.StageStopped, event.StageSkipped}

func newBoard() *board {
	return &board{byName: map[string]*stage{}, took: map[part]time.Duration{}}
}

// add takes in one event.
func (b *board) add(e event.Event) {
	if b.began.IsZero() {
		b.began = e.Time
	}
	switch {
	case e.Kind == event.RunStarted:
		*b = board{title: visible(e.Text), began: e.Time, byName: map[string]*stage{}, took: b.took}
	case e.Kind == event.StagesSelected && e.Selection != nil:
		b.choose(*e.Selection)
	case e.Kind == event.RunEnded:
		for _, s := range b.stages {
			s.steps, s.retry = nil, nil
		}
	case e.Stage != "":
		b.stage(e).add(b, e)
	}
}

// choose begins a create or destroy; a recreate has both.
func (b *board) choose(selection event.Selection) {
	b.command, b.stages, b.byName = selection.Command, nil, map[string]*stage{}
	for _, s := range selection.Stages {
		one := &stage{layer: s.Layer, name: s.Stage, needs: s.Needs, gatesNeed: s.GatesNeed, selected: true}
		b.stages = append(b.stages, one)
		b.byName[s.Stage] = one
	}
}

func (b *board) stage(e event.Event) *stage {
	s := b.byName[e.Stage]
	if s == nil {
		s = &stage{layer: e.Layer, name: e.Stage}
		b.byName[e.Stage] = s
		b.stages = append(b.stages, s)
	}
	return s
}

func (s *stage) add(b *board, e event.Event) {
	if slices.Contains(settling, e.Kind) {
		b.measure(s, e)
		s.result, s.steps, s.retry = e.Kind, nil, nil
		return
	}
	switch e.Kind {
	case event.StageStarted: // a volatile stage may start again
		s.began, s.last, s.lastStep, s.result, s.apart = e.Time, e.Time, "", "", false
	case event.StepStarted:
		s.start(e)
	case event.StepEnded:
		s.end(e)
	case event.Retry:
		s.retry = &e
	case event.ResourceStarted, event.Resource:
		if p := s.active(); p != nil {
			p.resource(e)
		}
	case event.GateClosed, event.GateOpen, event.GateFailed:
		if p := s.active(); p != nil && p.started.Step == "gates" {
			p.gate(e)
		}
	}
}

func (s *stage) start(e event.Event) {
	if s.began.IsZero() && e.Step != "preflight" {
		s.began, s.last = e.Time, e.Time
	}
	if e.Step == "gates" {
		s.gatesBegan, s.partEnd = e.Time, s.last
	}
	s.retry = nil
	s.steps = append(s.steps, &step{started: e, total: e.Total, changed: map[string]bool{}})
}

func (s *stage) end(e event.Event) {
	for i, p := range s.steps {
		if p.started.Step == e.Step {
			s.steps = slices.Delete(s.steps, i, i+1)
			break
		}
	}
	s.last, s.lastStep = e.Time, e.Step
	s.apart = len(s.gatesNeed) > 0 && (e.Step == "apply" || e.Step == "gates") && e.Text == ""
}

// active returns the step that the stage's events are about; nil without one.
func (s *stage) active() *step {
	if len(s.steps) == 0 {
		return nil
	}
	return s.steps[len(s.steps)-1]
}

// working reports whether castle does something for the stage.
func (s *stage) working() bool {
	return s.result == "" && (len(s.steps) > 0 || s.retry != nil || !s.began.IsZero() && !s.apart)
}

// resource takes in the start or the end of a change. A replacement is two changes of one resource.
func (p *step) resource(e event.Event) {
	of := func(r event.Event) bool { return r.Address == e.Address }
	p.resources = slices.DeleteFunc(p.resources, of)
	if e.Kind == event.ResourceStarted {
		p.total = max(p.total, e.Total)
		p.resources = append(p.resources, e)
	}
	if e.Action != "read" {
		p.changed[e.Address] = e.Kind == event.Resource
	}
	p.done = 0
	for _, done := range p.changed {
		if done {
			p.done++
		}
	}
}

func (p *step) gate(e event.Event) {
	i := slices.IndexFunc(p.gates, func(g *closedGate) bool { return g.name == e.Gate })
	switch {
	case e.Kind == event.GateClosed && i < 0:
		p.gates = append(p.gates, &closedGate{
			name: e.Gate, began: p.started.Time, reason: e.Text, since: e.Time,
			timeout: time.Duration(e.TimeoutSeconds * float64(time.Second)),
		})
	case e.Kind == event.GateClosed:
		if p.gates[i].reason != e.Text {
			p.gates[i].reason, p.gates[i].since = e.Text, e.Time
		}
	default:
		if i >= 0 {
			p.gates = slices.Delete(p.gates, i, i+1)
		}
		// A gate that must be open several times in a row may close again.
		p.changed[e.Gate] = e.Kind == event.GateOpen
	}
	p.done = 0
	for name, open := range p.changed {
		if open && !slices.ContainsFunc(p.gates, func(g *closedGate) bool { return g.name == name }) {
			p.done++
		}
	}
}
