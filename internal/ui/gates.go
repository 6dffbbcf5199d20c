package ui

import (
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

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
			g.stop()
			delete(l.gates, key)
		}
	}
}
