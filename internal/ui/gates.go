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
	told  bool        // some reason was told
	timer *time.Timer // tells last; nil while last has been told
}

// gate reports whether a gate's event is worth a line now. That it is closed is
// told after a while, if it is still so, and from then on not oftener than that.
func (l *Lines) gate(e event.Event) bool {
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
		return g.told
	}
	if g == nil {
		g = &closedGate{}
		l.gates[key] = g
	}
	g.last = e
	if g.timer == nil {
		g.timer = time.AfterFunc(patience, func() { l.tell(key, g) })
	}
	return false
}

func (g *closedGate) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// tell writes why a gate is still closed.
func (l *Lines) tell(key string, g *closedGate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[key] != g {
		return // it opened while the timer fired
	}
	g.told, g.timer = true, nil
	g.last.Time = time.Now()
	l.line(g.last)
}

// forget drops a stage's closed gates: nobody waits for them any more, and who
// did says how it ended.
func (l *Lines) forget(stage string) {
	for key, g := range l.gates {
		if g.last.Stage == stage {
			g.stop()
			delete(l.gates, key)
		}
	}
}
