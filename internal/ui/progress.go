package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
)

// reminder is how long a stage at work may have no line. Then it gets one that says what it waits for.
const reminder = 30 * time.Second

// progressive holds the verb of each step that gets reminders. A command of the user has its own output.
var progressive = map[string]string{
	"plan": "planning", "apply": "applying", "destroy": "destroying", "import": "importing",
	"adopt": "importing", "restore": "restoring", "gates": "waiting for gates",
	"preflight": "running preflights", "proof": "verifying", "revoke": "revoking the token",
	"state rm": "untracking",
}

// pause is the time without a line of a stage at work.
type pause struct {
	timer *time.Timer
	due   time.Time
}

func (p *pause) restart() {
	p.due = time.Now().Add(reminder)
	p.timer.Reset(reminder)
}

// schedule begins or ends the reminders of a stage.
func (l *Lines) schedule(name string) {
	s, p := l.run.Part().Stage(name), l.pauses[name]
	works := s != nil && s.Step() != nil && progressive[s.Step().Name] != ""
	switch {
	case works && p == nil:
		p = &pause{due: time.Now().Add(reminder)}
		p.timer = time.AfterFunc(reminder, func() { l.remind(name, p) })
		l.pauses[name] = p
	case !works && p != nil:
		p.timer.Stop()
		delete(l.pauses, name)
	}
}

// remind prints what a stage is at, unless its step ended, or it had a line, while the timer fired.
func (l *Lines) remind(name string, p *pause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interrupted || l.pauses[name] != p || time.Now().Before(p.due) {
		return
	}
	s := l.run.Part().Stage(name)
	of := event.Event{Layer: s.Layer, Stage: s.Stage}
	l.write(time.Now(), of, l.paint.dim("still "+progress(s, time.Now())))
}

// progress describes a step in progress: the resource that takes longest, or every closed gate.
func progress(s *history.Stage, now time.Time) string {
	step := s.Step()
	text, took, p := progressive[step.Name], clock(now.Sub(step.Started)), s.Progress(step)
	switch {
	case step.Name == history.GatesStep && len(p.Gates) > 0:
		if step.Total > 0 {
			text += fmt.Sprintf(", %d/%d open", p.Done, step.Total)
		}
		var gates []string
		for _, g := range p.Gates {
			at := took
			if g.Timeout > 0 {
				at += " of " + brief(g.Timeout)
			}
			gates = append(gates, fmt.Sprintf("%s %s: %s (%s)", g.Name, at, visible(g.Reason),
				clock(now.Sub(g.Since))))
		}
		return text + ": " + strings.Join(gates, "; ")
	case step.Name != history.GatesStep && step.Total > 0:
		text += fmt.Sprintf(" %d/%d", p.Done, step.Total)
	}
	if len(p.Resources) == 0 {
		return text + ": " + took
	}
	oldest := p.Resources[0]
	return text + ": " + oldest.Address + " " + clock(now.Sub(oldest.Started)) + more(len(p.Resources)-1)
}

// gateDelay is how long a gate is closed before a line explains why. Every gate is closed at first; only the
// ones that stay closed matter.
const gateDelay = 3 * time.Second

// delayedGate is a closed gate whose reason may get a line.
type delayedGate struct {
	last    event.Event // the latest reason
	printed bool        // some reason was printed
	timer   *time.Timer // prints last; nil once it is printed
}

// reportsGate reports whether a gate's event gets a line now. A closed gate gets one
// every gateDelay at most, with the latest reason.
func (l *Lines) reportsGate(e event.Event) bool {
	key := e.Stage + " " + e.Gate
	g := l.delayed[key]
	if e.Kind == event.GateOpen {
		if g == nil {
			return false
		}
		g.stop()
		delete(l.delayed, key)
		return g.printed
	}
	if g == nil {
		g = &delayedGate{}
		l.delayed[key] = g
	}
	g.last = e
	if g.timer == nil {
		g.timer = time.AfterFunc(gateDelay, func() { l.printGate(key, g) })
	}
	return false
}

func (g *delayedGate) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// printGate prints why a gate is still closed, together with the stage's other gates that have the same
// reason and no line for it yet.
func (l *Lines) printGate(key string, g *delayedGate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delayed[key] != g || g.timer == nil {
		return // it opened while the timer fired, or another one's line names it
	}
	var names []string
	for _, other := range l.delayed {
		if other.timer == nil || other.last.Stage != g.last.Stage || other.last.Text != g.last.Text {
			continue
		}
		other.stop()
		other.printed, other.timer = true, nil
		names = append(names, other.last.Gate)
	}
	slices.Sort(names)
	text := plural(len(names), "gate") + " " + strings.Join(names, ", ") + " closed: "
	l.write(time.Now(), g.last, l.paint.yellow(text)+g.last.Text)
}

// delayedGates are the closed gates by stage and gate.
type delayedGates map[string]*delayedGate

// dropAll drops the closed gates of a stage that does not wait for them any more.
func (all delayedGates) dropAll(stage string) {
	for key, g := range all {
		if g.last.Stage == stage {
			all.drop(key)
		}
	}
}

func (all delayedGates) drop(key string) {
	if g := all[key]; g != nil {
		g.stop()
		delete(all, key)
	}
}
