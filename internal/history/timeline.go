// Package history folds the events of a run into what they add up to: its stages with their steps, resources
// and gates. It learns from earlier runs how long a part usually takes, and finds the critical path of a run.
// The view of a terminal, reports, `castle status`, `castle graph` and `castle logs` read this fold. A
// Timeline has the run as a whole, and each part apart: a recreate has a destroy and a create.
package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Timeline is what the events of a run so far add up to.
type Timeline struct {
	ID, By, Title string // Title is such as "create blue/proxmox"
	Began, Ended  time.Time
	Whole         Part    // all of the run
	Parts         []*Part // the first one has what precedes any selection
	Machines      []Machine
	Retries       []event.Event
	Diagnoses     []event.Event
	Notices       []string
	Receipt       string
	Flux          []event.FluxStep // when its gate last opened
	End           *event.Event     // that ended the run; nil: it goes on, or was killed
}

// Part is what one selection of stages, of a create or destroy, adds up to.
type Part struct {
	Command string   // create or destroy; empty without a selection
	Stages  []*Stage // the selected ones, then others as they appear
}

// Stage is one stage in a part of a run.
type Stage struct {
	Layer, Stage     string
	Needs, GatesNeed []string // of a selected one: see event.SelectedStage
	Selected         bool
	Result           event.Result // empty: it has not ended
	Reason           string       // why it failed or was skipped

	Started time.Time // the beginning of its turn, or the first event before it; zero without an event
	Ended   time.Time // the last event
	Turned  bool      // its turn began: an earlier preflight does not start a stage
	Active  time.Time // when its newest turn, or its first step apart from preflights, began

	Steps     []*Step     // in the order of their starts
	Gates     []*Gate     // in the order of their first results
	Resources []*Resource // in the order of their newest events
	Running   []*Step     // steps in progress, the oldest first
	Last      *Step       // that ended in this turn
	Retry     *event.Event
	Opened    time.Time // when all of its gates were last open
}

// Machine is one step of a rollout.
type Machine struct {
	Name    string  `json:"machine"`
	Action  string  `json:"action"` // as in castle rollout --dry-run -o json
	Failed  bool    `json:"failed"`
	Seconds float64 `json:"seconds"`
}

// Step is one step of a stage. Its end is zero if it is in progress, or if the run was killed.
type Step struct {
	Name           string
	Started, Ended time.Time
	Took           time.Duration
	Failure        string
	Total          int // gates, or resources that change; 0: not known
}

// Resource is one change, or read, of a resource by Terraform.
type Resource struct {
	Stage, Address, Action string
	Step                   *Step     // in which it started; nil outside of one
	Started, Ended         time.Time // an import has no start
	Took                   time.Duration
	Failed                 bool
}

// GateResult is the newest result of a gate. The values are part of reports in JSON.
type GateResult string

// The results of a gate; one that castle has not checked in the stage's turn has none.
const (
	GateOpen   GateResult = "open"
	GateClosed GateResult = "closed"
	GateFailed GateResult = "failed" // castle does not wait for it any more
)

// Gate is one gate of a stage.
type Gate struct {
	Name    string
	Result  GateResult
	Reason  string        // why it is closed; it stays if the gate fails
	Cause   bool          // Reason is a known cause
	Failure string        // why it failed
	Wait    *Step         // the newest wait for it; nil if castle only checked it
	Ended   time.Time     // the newest result in that wait, or check
	Closed  time.Time     // when it closed; zero since it was last open
	Since   time.Time     // when Reason was first given in that wait
	Opened  time.Time     // when it was last open
	Timeout time.Duration // how long it may stay closed
}

// Took returns how long castle has waited for the gate.
func (g *Gate) Took() time.Duration { return g.Ended.Sub(g.Wait.Started) }

// GatesStep is the name of the step that waits for gates.
const GatesStep = "gates"

// RunsTerraform reports whether a step of this name runs Terraform. The others wait for gates or check.
func RunsTerraform(step string) bool {
	return !slices.Contains([]string{GatesStep, "preflight", "proof", "revoke"}, step)
}

// Fold returns the timeline of events.
func Fold(events []event.Event) *Timeline {
	t := &Timeline{Parts: []*Part{{}}}
	for _, e := range events {
		t.Add(e)
	}
	return t
}

// Add adds the next event.
func (t *Timeline) Add(e event.Event) {
	if e.Kind == event.RunStarted {
		*t = *Fold(nil)
	}
	if t.Began.IsZero() {
		t.ID, t.Began = e.Run, e.Time
	}
	t.Ended = e.Time
	switch e.Kind {
	case event.RunStarted:
		t.Title, t.By = e.Text, e.By
	case event.StagesSelected:
		if e.Selection != nil {
			t.Parts = append(t.Parts, newPart(*e.Selection))
		}
	case event.MachineReady, event.MachineFailed:
		t.Machines = append(t.Machines, Machine{e.Machine, e.Action, e.Kind == event.MachineFailed,
			e.Seconds})
	case event.Retry:
		t.Retries = append(t.Retries, e)
	case event.Diagnosed:
		t.Diagnoses = append(t.Diagnoses, e)
	case event.Notice:
		t.Notices = append(t.Notices, e.Text)
	case event.Receipted:
		t.Receipt = e.Text
	case event.FluxConverged:
		isNew := func(s event.FluxStep) bool { return s.Ready == nil || s.Ready.After(t.Began) }
		if e.Flux != nil && slices.ContainsFunc(*e.Flux, isNew) { // else an earlier run has reported them
			t.Flux = *e.Flux
		}
	case event.RunEnded:
		t.End = &e
	}
	t.Whole.add(e)
	t.Part().add(e)
}

// Succeeded reports whether the run has ended without an error.
func (t *Timeline) Succeeded() bool {
	return t.End != nil && t.End.Ending != nil && t.End.Ending.Result == event.OutcomeSucceeded
}

// Took returns how long the run took, or has taken so far.
func (t *Timeline) Took() time.Duration {
	if t.End != nil {
		return duration(t.End.Seconds)
	}
	return t.Ended.Sub(t.Began)
}

// Part returns the newest part.
func (t *Timeline) Part() *Part { return t.Parts[len(t.Parts)-1] }

func newPart(selection event.Selection) *Part {
	p := &Part{Command: selection.Command}
	for _, s := range selection.Stages {
		p.Stages = append(p.Stages, &Stage{Layer: s.Layer, Stage: s.Stage, Needs: s.Needs,
			GatesNeed: s.GatesNeed, Selected: true})
	}
	return p
}

// Stage returns the stage of a name; nil if the part has none.
func (p *Part) Stage(name string) *Stage {
	if i := slices.IndexFunc(p.Stages, func(s *Stage) bool { return s.Stage == name }); i >= 0 {
		return p.Stages[i]
	}
	return nil
}

func (p *Part) add(e event.Event) {
	if e.Stage == "" {
		return
	}
	s := p.Stage(e.Stage)
	if s == nil {
		if e.Action == "read" {
			return // a look at what a stage would do, as a rollout's, is no turn of it
		}
		s = &Stage{Layer: e.Layer, Stage: e.Stage}
		p.Stages = append(p.Stages, s)
	}
	s.add(e)
}

func (s *Stage) add(e event.Event) {
	had := s.Result == event.ResultReady || s.Result == event.ResultUpToDate
	if had && (e.Kind == event.StageUpToDate && s.Turned || e.Step == "preflight") {
		return // a later part of a rollout finds nothing to do: the stage's own turn stays
	}
	if s.Started.IsZero() {
		s.Started = e.Time
	}
	s.Ended = e.Time
	switch e.Kind {
	case event.StageStarted:
		s.begin(e)
	case event.StepStarted:
		if s.Active.IsZero() && e.Step != "preflight" {
			s.Active = e.Time
		}
		step := &Step{Name: e.Step, Started: e.Time, Total: e.Total}
		s.Steps, s.Running, s.Retry = append(s.Steps, step), append(s.Running, step), nil
	case event.StepEnded:
		s.endStep(e)
	case event.Retry:
		s.Retry = &e
	case event.ResourceStarted, event.Resource:
		s.addResource(e)
	case event.GateClosed, event.GateOpen, event.GateFailed:
		if s.Gate(e.Gate) == nil {
			s.Gates = append(s.Gates, &Gate{Name: e.Gate})
		}
		s.Gate(e.Gate).add(e, s.wait())
	}
	if result, ends := e.Kind.Ends(); ends {
		s.end(e, result)
	}
}

// begin begins a turn. A stage that is up to date has another one when a stage is about to use its outputs.
func (s *Stage) begin(e event.Event) {
	if s.Result == "" && !s.Turned || s.Result == event.ResultUpToDate {
		s.Started = e.Time
	}
	s.Turned, s.Active, s.Last, s.Result = true, e.Time, nil, ""
	for _, g := range s.Gates { // a closed gate may be the reason for the turn
		g.Result, g.Reason = "", ""
	}
}

func (s *Stage) end(e event.Event, result event.Result) {
	s.Result, s.Reason, s.Running, s.Retry = result, "", nil, nil
	if !s.Turned && (result == event.ResultUpToDate || result == event.ResultSkipped) {
		s.Started = cmp.Or(s.Active, e.Time) // a preflight may be long ago
	}
	switch result {
	case event.ResultFailed, event.ResultSkipped:
		s.Reason = e.Text
	case event.ResultReady, event.ResultUpToDate:
		s.Opened = e.Time
		for _, g := range s.Gates {
			g.Closed = time.Time{}
		}
	}
}

func (s *Stage) endStep(e event.Event) {
	i := slices.IndexFunc(s.Steps, func(p *Step) bool { return p.Name == e.Step && p.Ended.IsZero() })
	if i < 0 {
		return
	}
	ended := s.Steps[i]
	ended.Ended, ended.Took, ended.Failure = e.Time, duration(e.Seconds), e.Text
	s.Last = ended
	s.Running = slices.DeleteFunc(s.Running, func(p *Step) bool { return p == ended })
}

// addResource adds the start or the end of a change. Terraform rounds its durations to seconds.
func (s *Stage) addResource(e event.Event) {
	r := &Resource{Stage: s.Stage, Address: e.Address, Step: s.Step(), Took: duration(e.Seconds)}
	i := slices.IndexFunc(s.Resources, func(r *Resource) bool {
		return r.Address == e.Address && r.Ended.IsZero()
	})
	if i >= 0 {
		if e.Kind == event.Resource {
			r = s.Resources[i]
			r.Took, r.Failed = e.Time.Sub(r.Started), e.Text == "failed"
		}
		s.Resources = slices.Delete(s.Resources, i, i+1)
	}
	s.Resources, r.Action = append(s.Resources, r), e.Action
	if e.Kind == event.Resource {
		r.Ended = e.Time
		return
	}
	r.Started = e.Time
	if r.Step != nil {
		r.Step.Total = max(r.Step.Total, e.Total)
	}
}

// Gate returns the gate of a name; nil if no event names it.
func (s *Stage) Gate(name string) *Gate {
	if i := slices.IndexFunc(s.Gates, func(g *Gate) bool { return g.Name == name }); i >= 0 {
		return s.Gates[i]
	}
	return nil
}

// add adds a result. wait is the newest wait of the stage for gates, or nil.
func (g *Gate) add(e event.Event, wait *Step) {
	again := g.Wait != wait
	g.Wait, g.Ended = wait, e.Time
	switch e.Kind {
	case event.GateOpen:
		g.Result, g.Reason, g.Failure = GateOpen, "", ""
		g.Opened, g.Closed, g.Since = e.Time, time.Time{}, time.Time{}
	case event.GateClosed:
		if g.Closed.IsZero() {
			g.Closed = e.Time
		}
		if again || g.Result != GateClosed || g.Reason != e.Text {
			g.Since = e.Time
		}
		g.Result, g.Reason, g.Cause, g.Failure = GateClosed, e.Text, e.Cause, ""
		g.Timeout = duration(e.TimeoutSeconds)
	case event.GateFailed:
		g.Result, g.Failure = GateFailed, e.Text
	}
}

// wait returns the newest step that waits, or waited, for gates; nil if there is none.
func (s *Stage) wait() *Step {
	for _, p := range slices.Backward(s.Steps) {
		if p.Name == GatesStep {
			return p
		}
	}
	return nil
}

// Step returns the newest step in progress; nil without one.
func (s *Stage) Step() *Step {
	if len(s.Running) == 0 {
		return nil
	}
	return s.Running[len(s.Running)-1]
}

// Deferred reports whether the stage has only its deferred gates left. castle waits for them later.
func (s *Stage) Deferred() bool {
	return len(s.GatesNeed) > 0 && s.Last != nil && (s.Last.Name == "apply" || s.Last.Name == GatesStep) &&
		s.Last.Failure == ""
}

// Working reports whether castle does something for the stage.
func (s *Stage) Working() bool {
	return s.Result == "" && (len(s.Running) > 0 || s.Retry != nil || !s.Active.IsZero() && !s.Deferred())
}

// Progress is how far a step has come.
type Progress struct {
	Done      int         // gates that are open, or resources that have changed
	Resources []*Resource // in progress, the oldest first
	Gates     []*Gate     // that are closed: those for a known cause first, then the oldest
}

// Progress returns how far a step of the stage has come. A replacement is two changes of one resource, and a
// gate that has to be open several times in a row may close again.
func (s *Stage) Progress(of *Step) (p Progress) {
	changed := map[string]bool{}
	for _, r := range s.Resources {
		if r.Step == of && r.Action != "read" {
			changed[r.Address] = !r.Ended.IsZero()
		}
		if r.Step == of && r.Ended.IsZero() {
			p.Resources = append(p.Resources, r)
		}
	}
	for _, g := range s.Gates {
		if g.Wait == of && g.Result == GateClosed {
			p.Gates = append(p.Gates, g)
		}
		changed["gate "+g.Name] = g.Wait == of && g.Result == GateOpen
	}
	for _, done := range changed {
		if done {
			p.Done++
		}
	}
	slices.SortStableFunc(p.Gates, func(a, b *Gate) int {
		switch {
		case a.Cause && !b.Cause:
			return -1
		case b.Cause && !a.Cause:
			return 1
		}
		return a.Closed.Compare(b.Closed)
	})
	return p
}

// Named accepts the steps of a name.
func Named(name string) func(step string) bool { return func(step string) bool { return step == name } }

// Took returns how long the accepted steps took.
func (s *Stage) Took(accept func(step string) bool) (sum time.Duration) {
	for _, p := range s.Steps {
		if accept(p.Name) {
			sum += p.Took
		}
	}
	return sum
}

func duration(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
