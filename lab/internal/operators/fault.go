package operators

import (
	"context"
	"sync"
	"time"
)

// Faults are what may be asked to go wrong; internal/fault explains each.
type Faults struct {
	// Times say how long, by name; 0 is a fault that is over.
	Times map[string]time.Duration
	// Frozen is kustomization-frozen.
	Frozen bool
}

// Turn is the moment when a fault begins or ends.
type Turn struct {
	Time  time.Time
	Fault string
	Ends  bool
}

// fault stands in the way of a step that is due, for its time and then never
// again. nil is one that nobody asked for.
type fault struct {
	w     *world
	name  string
	lasts time.Duration

	mu    sync.Mutex
	began time.Time
	over  bool
}

func (w *world) fault(name string) *fault {
	lasts := w.faults.Times[name]
	if lasts == 0 {
		return nil
	}
	return &fault{w: w, name: name, lasts: lasts}
}

// asked says whether there was to be such a fault, over or not.
func (w *world) asked(name string) bool {
	_, asked := w.faults.Times[name]
	return asked
}

// holds says whether the fault stands in the way. It is asked when the step is
// due: the first time, the fault begins. Its end is told before anybody can see it.
func (f *fault) holds() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	now := f.w.now()
	if f.began.IsZero() {
		f.began = now
		f.w.tell(f.name, false)
	}
	if now.Sub(f.began) < f.lasts {
		return true
	}
	f.over = true
	f.w.tell(f.name, true)
	return false
}

// comes says whether the fault is there or yet to begin.
func (f *fault) comes() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.over
}

// keeps has something not be filled in as long as the fault holds.
func (f *fault) keeps(then fill) fill {
	return func(ctx context.Context, namespace string, authority []byte) error {
		if f.holds() {
			return nil
		}
		return then(ctx, namespace, authority)
	}
}

func (w *world) tell(name string, ends bool) {
	if w.turn != nil {
		w.turn(Turn{Time: w.now(), Fault: name, Ends: ends})
	}
}
