package cluster

import (
	"sync"
	"time"
)

// Faults are the failures that a rehearsal can inject; internal/fault explains each.
type Faults struct {
	// Times hold the durations by name; 0 is a fault that is over.
	Times map[string]time.Duration
	// Frozen is kustomization-frozen.
	Frozen bool
	// ReplicaLast is the node of replica-last, with or without the prefix of the cluster.
	ReplicaLast string
	// BackupIncomplete is backup-incomplete, and PasswordDiverged password-diverged.
	BackupIncomplete, PasswordDiverged bool
}

// Turn is the moment when a fault begins or ends.
type Turn struct {
	Time  time.Time
	Fault string
	Ends  bool
}

// Fault delays a step that is due, for its duration and only once. A nil Fault delays nothing.
type Fault struct {
	w     *View
	name  string
	at    string
	lasts time.Duration

	mu          sync.Mutex
	began, seen time.Time
	over        bool
}

// unseen is how long a fault waits for castle's first request for what it delays.
const unseen = 30 * time.Second

// Fault returns a fault by its name, or nil if the rehearsal does not inject it. Its duration counts from
// castle's first request, after it began, for a URL that contains at: on a slow machine it would otherwise
// be over before a gate asks.
func (w *View) Fault(name, at string) *Fault {
	lasts := w.Faults.Times[name]
	if lasts == 0 {
		return nil
	}
	return &Fault{w: w, name: name, at: at, lasts: lasts}
}

// Asked reports whether the rehearsal injects the fault, over or not.
func (w *View) Asked(name string) bool {
	_, asked := w.Faults.Times[name]
	return asked
}

// Holds reports whether the fault delays the step. The caller calls it when the step is due; the
// first call starts the fault. It reports the end to Turn before the end takes effect.
func (f *Fault) Holds() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	now := f.w.Now()
	if f.began.IsZero() {
		f.began = now
		f.w.Tell(f.name, false)
	}
	if f.seen.IsZero() {
		switch asked := f.w.Asks.since(f.at, f.began); {
		case !asked.IsZero():
			f.seen = asked
		case f.w.Asks == nil || now.Sub(f.began) >= unseen:
			f.seen = now
		}
	}
	if f.seen.IsZero() || now.Sub(f.seen) < f.lasts {
		return true
	}
	f.over = true
	f.w.Tell(f.name, true)
	return false
}

// Met reports whether castle has sent a request for what the fault delays since a time. A fault of something
// that nobody looks at for long begins there.
func (f *Fault) Met(since time.Time) bool {
	return f.w.Asks == nil || !f.w.Asks.since(f.at, since).IsZero()
}

// Comes reports whether the fault is active or yet to begin.
func (f *Fault) Comes() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.over
}

// Tell reports that a fault begins or ends.
func (w *View) Tell(name string, ends bool) {
	if w.Turn != nil {
		w.Turn(Turn{Time: w.Now(), Fault: name, Ends: ends})
	}
}
