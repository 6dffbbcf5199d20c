package ui

import (
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// patience is how long a gate may be closed before a person is told why. Every
// gate is closed at first, for a moment; only the ones that stay so are news.
const patience = 3 * time.Second

// closedGate is a gate that has not opened yet.
type closedGate struct {
	last  event.Event // why it is closed now
	told  bool
	timer *time.Timer
}

// gate reports whether a gate's event is worth a line now. One that is not yet
// is told later, if the gate is still closed by then.
func (l *Lines) gate(e event.Event) bool {
	if l.verbose {
		return true
	}
	key := e.Stage + " " + e.Gate
	g := l.gates[key]
	if e.Kind == event.GateOpen {
		delete(l.gates, key)
		return g != nil && g.stop()
	}
	if g == nil {
		g = &closedGate{}
		l.gates[key] = g
		g.timer = time.AfterFunc(patience, func() { l.tell(key) })
	}
	g.last = e
	return g.told
}

// stop ends the wait to tell and reports whether the gate was told.
func (g *closedGate) stop() bool {
	g.timer.Stop()
	return g.told
}

// tell writes why a gate is still closed.
func (l *Lines) tell(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gates[key]; g != nil {
		g.told = true
		g.last.Time = time.Now()
		l.line(g.last)
	}
}

// forget drops a stage's closed gates: it has ended, and said why.
func (l *Lines) forget(stage string) {
	for key, g := range l.gates {
		if g.last.Stage == stage {
			g.stop()
			delete(l.gates, key)
		}
	}
}
