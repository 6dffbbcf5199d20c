package gate

import (
	"context"
	"math/rand/v2"
	"time"
)

// waiting is what a Wait remembers from one attempt to the next.
type waiting struct {
	gate      Gate
	listener  Listener
	listening bool
	changed   <-chan struct{} // nil where nothing tells of changes
	breath    time.Duration   // how long changes are not listened to

	heard bool
	last  error     // the last answer
	since time.Time // when it was heard first

	nudged time.Time // when the last nudge was, or the wait began
	failed string    // what the last nudge failed with
}

// listen begins to hear of changes. A gate that is open needs no watch, so this
// waits for the first closed answer; what changes until the watch stands is for
// the watch to tell when it begins.
func (w *waiting) listen(ctx context.Context) {
	if w.gate.Changed != nil && !w.listening {
		w.listening, w.changed = true, w.gate.Changed(ctx)
	}
}

func (w *waiting) answer(err error) {
	if w.heard && sameAnswer(w.last, err) {
		return
	}
	w.heard, w.last, w.since = true, err, time.Now()
	if w.listener.Answer != nil {
		w.listener.Answer(err)
	}
}

func sameAnswer(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

// nudge helps along what stands still, unless it did so a moment ago. That it
// could not is told and no more: the gate may open without.
func (w *waiting) nudge(ctx context.Context) {
	if w.gate.Nudge == nil || time.Since(w.nudged) < patience {
		return
	}
	did, err := w.gate.Nudge(ctx)
	w.nudged = time.Now()
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	told := did != "" || failed != "" && failed != w.failed && ctx.Err() == nil
	w.failed = failed
	if told && w.listener.Nudge != nil {
		w.listener.Nudge(did, err)
	}
}

// rest pauses for d, or until something has changed, which it reports. It takes
// its breath first.
func (w *waiting) rest(ctx context.Context, d time.Duration) (changed bool) {
	first := min(w.breath, d)
	sleep(ctx, first)
	began := time.Now()
	t := time.NewTimer(d - first)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			w.breath = breath
			return false
		case _, changed = <-w.changed:
			switch {
			case !changed:
				w.changed = nil // the watch has ended: only the pauses are left
			case time.Since(began) < longestBreath:
				w.breath = min(2*w.breath, longestBreath)
				return true
			default:
				w.breath = breath
				return true
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// jitter spreads a pause over ±20 %, so that gates which fail together do not ask together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
