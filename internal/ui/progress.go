package ui

import (
	"fmt"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// A step of Terraform that has had no line for firstHeartbeat gets one that names the
// resource in progress. The pause doubles after each, up to lastHeartbeat.
const (
	firstHeartbeat = 15 * time.Second
	lastHeartbeat  = time.Minute
)

// progressive holds the verb of each step in which Terraform changes or reads something.
var progressive = map[string]string{
	"plan": "planning", "apply": "applying", "destroy": "destroying", "import": "importing",
	"adopt": "importing",
}

// step is a step of Terraform in progress.
type step struct {
	started   event.Event
	resources []event.Event // in progress, the oldest first
	pause     time.Duration
	due       time.Time // of the next heartbeat
	timer     *time.Timer
}

// track keeps the steps in progress, and their resources.
func (l *Lines) track(e event.Event) {
	s := l.steps[e.Stage]
	switch e.Kind {
	case event.StepStarted:
		if progressive[e.Step] != "" && s == nil {
			s = &step{started: e}
			s.timer = time.AfterFunc(firstHeartbeat, func() { l.heartbeat(s) })
			l.steps[e.Stage] = s
			s.schedule(firstHeartbeat)
		}
	case event.ResourceStarted:
		if s != nil {
			s.resources = append(s.resources, e)
		}
	case event.Resource:
		if s != nil {
			s.resources = slices.DeleteFunc(s.resources, func(r event.Event) bool {
				return r.Address == e.Address
			})
		}
	case event.StepEnded, event.StageFailed, event.StageStopped:
		if s != nil && (e.Step == s.started.Step || e.Step == "") {
			s.timer.Stop()
			delete(l.steps, e.Stage)
		}
	}
}

// schedule sets the next heartbeat.
func (s *step) schedule(pause time.Duration) {
	s.pause, s.due = pause, time.Now().Add(pause)
	s.timer.Reset(pause)
}

// heartbeat prints the progress of a step, unless it ended, or had a line, while the timer fired.
func (l *Lines) heartbeat(s *step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interrupted || l.steps[s.started.Stage] != s || time.Now().Before(s.due) {
		return
	}
	l.write(time.Now(), s.started, l.paint.dim(s.String()))
	s.schedule(min(2*s.pause, lastHeartbeat))
}

// String names the resource that has been in progress longest.
func (s *step) String() string {
	text := "still " + progressive[s.started.Step] + ": "
	if len(s.resources) == 0 {
		return text + since(s.started.Time)
	}
	text += s.resources[0].Address + " " + since(s.resources[0].Time)
	if more := len(s.resources) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

func since(t time.Time) string { return time.Since(t).Round(time.Second).String() }

// gateDelay is how long a gate is closed before a line explains why. Every gate is closed at first; only the
// ones that stay closed matter.
const gateDelay = 3 * time.Second

// closedGate is a gate that has not opened yet.
type closedGate struct {
	last    event.Event // the latest reason
	printed bool        // some reason was printed
	timer   *time.Timer // prints last; nil once it is printed
}

// reportsGate reports whether a gate's event gets a line now. A closed gate gets one
// every gateDelay at most, with the latest reason.
func (l *Lines) reportsGate(e event.Event) bool {
	if l.verbose {
		return true
	}
	key := e.Stage + " " + e.Gate
	g := l.gates[key]
	if e.Kind == event.GateOpen {
		if g == nil {
			return false
		}
		g.stop()
		delete(l.gates, key)
		return g.printed
	}
	if g == nil {
		g = &closedGate{}
		l.gates[key] = g
	}
	g.last = e
	if g.timer == nil {
		g.timer = time.AfterFunc(gateDelay, func() { l.printGate(key, g) })
	}
	return false
}

func (g *closedGate) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// printGate prints why a gate is still closed.
func (l *Lines) printGate(key string, g *closedGate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[key] != g {
		return // it opened while the timer fired
	}
	g.printed, g.timer = true, nil
	g.last.Time = time.Now()
	l.line(g.last)
}

// dropGates drops the closed gates of a stage that does not wait for them any more.
func (l *Lines) dropGates(stage string) {
	for key, g := range l.gates {
		if g.last.Stage == stage {
			l.dropGate(key)
		}
	}
}

func (l *Lines) dropGate(key string) {
	if g := l.gates[key]; g != nil {
		g.stop()
		delete(l.gates, key)
	}
}
