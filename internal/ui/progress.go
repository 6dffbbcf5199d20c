package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
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
	s, p := l.board.byName[name], l.pauses[name]
	works := s != nil && s.active() != nil && progressive[s.active().started.Step] != ""
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
	step := l.board.byName[name].active()
	l.write(time.Now(), step.started, l.paint.dim("still "+step.progress(time.Now())))
}

// progress describes a step in progress: the resource that takes longest, or every closed gate.
func (p *step) progress(now time.Time) string {
	text := progressive[p.started.Step]
	if p.started.Step == "gates" {
		return text + p.closedGates(now)
	}
	if p.total > 0 {
		text += fmt.Sprintf(" %d/%d", p.done, p.total)
	}
	if len(p.resources) == 0 {
		return text + ": " + clock(now.Sub(p.started.Time))
	}
	return text + ": " + p.resources[0].Address + " " + clock(now.Sub(p.resources[0].Time)) +
		more(len(p.resources)-1)
}

func (p *step) closedGates(now time.Time) string {
	waited := clock(now.Sub(p.started.Time))
	if len(p.gates) == 0 {
		return ": " + waited
	}
	text := ""
	if p.total > 0 {
		text = fmt.Sprintf(", %d/%d open", p.done, p.total)
	}
	var gates []string
	for _, g := range p.gates {
		at := waited
		if g.timeout > 0 {
			at += " of " + brief(g.timeout)
		}
		gates = append(gates, fmt.Sprintf("%s %s: %s (%s)", g.name, at, visible(g.reason),
			clock(now.Sub(g.since))))
	}
	return text + ": " + strings.Join(gates, "; ")
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
