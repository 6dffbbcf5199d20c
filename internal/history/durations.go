package history

import (
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
)

// Subject is something that takes time in a run: a whole stage, a gate, or a change of a resource. With a
// command it is a node of a part: a stage until it is applied and its immediate gates are open, or Late, the
// wait for its deferred gates, which may begin long after.
type Subject struct {
	Command, Stage, Gate, Address, Action string
	Late                                  bool
}

// Selection lists the stages of a create in their order, or in reverse for a destroy: each with the others
// that the command completes before it.
func Selection(command string, stages []*config.Stage) *event.Selection {
	names := func(all []*config.Stage) (names []string) {
		for _, s := range all {
			if slices.Contains(stages, s) {
				names = append(names, s.Name)
			}
		}
		return names
	}
	needs := func(s *config.Stage) []*config.Stage { return s.Needs }
	destroys := command == "destroy"
	if destroys {
		needs = graph.Reverse(stages, needs)
	}
	selected := &event.Selection{Command: command, Stages: []event.SelectedStage{}}
	for _, s := range stages {
		one := event.SelectedStage{Layer: s.Layer, Stage: s.Name, Needs: names(needs(s))}
		for _, g := range s.Gates {
			if !destroys {
				one.GatesNeed = append(one.GatesNeed, names(g.Needs)...)
			}
		}
		slices.Sort(one.GatesNeed)
		one.GatesNeed = slices.Compact(one.GatesNeed)
		selected.Stages = append(selected.Stages, one)
	}
	return selected
}

// PartOf returns the part of a run that created all of the stages, or destroyed them. The part of a recreate
// is its create, which follows the receipt.
func PartOf(kind string, stages []*config.Stage, events []event.Event) *Part {
	if kind != "destroy" {
		kind = "create"
		isReceipt := func(e event.Event) bool { return e.Kind == event.Receipted }
		events = events[max(0, slices.IndexFunc(events, isReceipt)):]
	}
	p := newPart(*Selection(kind, stages))
	for _, e := range events {
		p.add(e)
	}
	return p
}

// nodes returns the nodes of the selected stages.
func (p *Part) nodes() (all []Subject) {
	for _, s := range p.Stages {
		if s.Selected {
			all = append(all, p.Node(s, false))
		}
		if len(s.GatesNeed) > 0 {
			all = append(all, p.Node(s, true))
		}
	}
	return all
}

// Node returns a stage, or the wait for its deferred gates, as a node.
func (p *Part) Node(s *Stage, late bool) Subject {
	return Subject{Command: p.Command, Stage: s.Stage, Late: late}
}

func (p *Part) needs(n Subject) (needs []Subject) {
	s := p.Stage(n.Stage)
	names := s.Needs
	if n.Late {
		names, needs = s.GatesNeed, []Subject{p.Node(s, false)}
	}
	for _, name := range names {
		if need := p.Stage(name); need != nil {
			needs = append(needs, p.Node(need, len(need.GatesNeed) > 0))
		}
	}
	return needs
}

// CriticalPath returns the chain of nodes that took longest, and how long.
func (p *Part) CriticalPath() ([]Subject, time.Duration, error) {
	return graph.CriticalPath(p.nodes(), p.needs, p.Took)
}

// Took returns how long a node took; 0 if the part has no event of it.
func (p *Part) Took(n Subject) time.Duration {
	s := p.Stage(n.Stage)
	began, end, wait := s.Started, s.Ended, s.LateWait()
	if s.Result == event.ResultSkipped || s.Result == event.ResultInterrupted {
		end = s.worked() // the stages that it waited for afterwards have their own durations
	}
	switch {
	case wait != nil && n.Late:
		began = wait.Started
	case wait != nil:
		end = began
		for _, step := range s.Steps {
			if !step.Ended.IsZero() && !step.Ended.After(wait.Started) && step.Ended.After(end) {
				end = step.Ended
			}
		}
	case n.Late:
		return 0
	}
	return end.Sub(began)
}

// LateWait returns the wait for the deferred gates of the stage; nil if there was none.
func (s *Stage) LateWait() *Step {
	if len(s.GatesNeed) == 0 {
		return nil
	}
	return s.wait()
}

// worked returns the end of the last step, or the last event if the run ended in a step.
func (s *Stage) worked() time.Time {
	last := s.Started
	for _, step := range s.Steps {
		if step.Ended.IsZero() {
			return s.Ended
		}
		last = slices.MaxFunc([]time.Time{last, step.Ended}, time.Time.Compare)
	}
	return last
}

// LeastSlow is how long a resource takes at least to count as slow.
const LeastSlow = 100 * time.Millisecond

// Durations returns what a run took, where it went well: stages that it changed, open gates, resources.
func (t *Timeline) Durations() map[Subject]time.Duration {
	all := map[Subject]time.Duration{}
	for _, p := range t.Parts {
		for _, n := range p.nodes() {
			if s := p.Stage(n.Stage); s.Changed() && !s.Active.IsZero() {
				all[n] = p.Took(n)
			}
		}
	}
	for _, s := range t.Whole.Stages {
		if s.Changed() {
			all[Subject{Stage: s.Stage}] = s.Ended.Sub(s.Started)
		}
		for _, g := range s.Gates {
			if g.Result == GateOpen && g.Wait != nil {
				all[Subject{Stage: s.Stage, Gate: g.Name}] = g.Took()
			}
		}
		for _, r := range s.Resources {
			if !r.Ended.IsZero() && !r.Failed && r.Took >= LeastSlow {
				all[Subject{Stage: s.Stage, Address: r.Address, Action: r.Action}] = r.Took
			}
		}
	}
	return all
}

// Changed reports whether the stage ended well, and not because it was up to date.
func (s *Stage) Changed() bool {
	return s.Result == event.ResultReady || s.Result == event.ResultGone
}

// Usual holds the durations of each subject in earlier runs.
type Usual map[Subject][]time.Duration

// Learn returns the usual durations of runs.
func Learn(runs ...*Timeline) Usual {
	u := Usual{}
	for _, t := range runs {
		for subject, took := range t.Durations() {
			u[subject] = append(u[subject], took)
		}
	}
	return u
}

// Of returns the median of a subject; nil if no run has measured it.
func (u Usual) Of(subject Subject) *time.Duration { return Median(u[subject]) }

// Median returns the middle of durations; nil if there are none.
func Median(durations []time.Duration) *time.Duration {
	if len(durations) == 0 {
		return nil
	}
	sorted, middle := slices.Sorted(slices.Values(durations)), len(durations)/2
	if len(sorted)%2 == 1 {
		return &sorted[middle]
	}
	return new((sorted[middle-1] + sorted[middle]) / 2)
}

// Left estimates how long the part still takes: the longest path through the nodes that are left, each with
// its usual duration. There is no estimate before a stage has begun, because it may be up to date, nor if a
// node that is left has no usual duration.
func (p *Part) Left(now time.Time, u Usual) (time.Duration, bool) {
	begun, known := false, true
	for _, s := range p.Stages {
		begun = begun || s.Selected && s.Result != "" && s.Result != event.ResultUpToDate
	}
	_, longest, err := graph.CriticalPath(p.nodes(), p.needs, func(n Subject) time.Duration {
		s := p.Stage(n.Stage)
		began, done := s.Active, s.Result != "" || s.Deferred()
		if n.Late {
			began, done = time.Time{}, s.Result != ""
			if s.Deferred() && len(s.Running) > 0 {
				began = s.Running[0].Started
			}
		}
		if done {
			return 0
		}
		usual := u.Of(n)
		switch {
		case usual == nil:
			known = false
			return 0
		case began.IsZero():
			return *usual
		}
		begun = true
		return max(0, *usual-now.Sub(began))
	})
	return longest, err == nil && begun && known && longest > 0
}
