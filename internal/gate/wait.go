package gate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Policy says how long and how patiently Wait asks. Zero fields take the defaults.
type Policy struct {
	Timeout time.Duration // from the first attempt to the last; default 10m
	Stable  int           // consecutive successes that open the gate; default 1
	First   time.Duration // pause after the first closed answer; default 250ms
	Most    time.Duration // the pause doubles up to this; default 5s
}

const (
	defaultTimeout = 10 * time.Minute
	defaultFirst   = 250 * time.Millisecond
	defaultMost    = 5 * time.Second
)

func (p Policy) withDefaults() Policy {
	if p.Timeout == 0 {
		p.Timeout = defaultTimeout
	}
	if p.Stable == 0 {
		p.Stable = 1
	}
	if p.First == 0 {
		p.First = defaultFirst
	}
	if p.Most == 0 {
		p.Most = defaultMost
	}
	return p
}

// TimeoutError says that a gate did not open in time, what it was last waiting
// for and for how long that had been so.
type TimeoutError struct {
	Gate    string
	Timeout time.Duration
	Last    error         // what the last finished attempt answered
	Since   time.Duration // how long Last has been the answer
}

func (e *TimeoutError) Error() string {
	last := "no attempt finished"
	if e.Last != nil {
		last = e.Last.Error()
	}
	return fmt.Sprintf("gate %s: not open after %s; for the last %s: %s",
		e.Gate, e.Timeout, e.Since.Round(time.Second), last)
}

func (e *TimeoutError) Unwrap() error { return e.Last }

// Wait asks g until it has been open p.Stable times in a row. A closed answer
// resets the count. report, if not nil, hears every answer that differs from
// the one before (nil for an open one). Wait ends with nil, a *TimeoutError, a
// Permanent error, or the cause of ctx's cancellation, which is never success.
func Wait(ctx context.Context, g Gate, p Policy, report func(error)) error {
	p = p.withDefaults()
	attempts, stop := context.WithTimeout(ctx, p.Timeout)
	defer stop()
	var changed <-chan struct{}
	if g.Changed != nil {
		changed = g.Changed(attempts)
	}
	w := &waiting{report: report, since: time.Now()}
	pause := p.First
	for open := 0; ; {
		err := g.Check(attempts)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			w.answer(nil)
			if open++; open >= p.Stable {
				return nil
			}
			pause = p.First
		case IsPermanent(err):
			return fmt.Errorf("gate %s: %w", g.Name, err)
		case attempts.Err() == nil || !errors.Is(err, context.DeadlineExceeded):
			open = 0
			w.answer(err)
		}
		switch {
		case attempts.Err() != nil:
		case err == nil:
			// A watch must not hurry this pause: stable asks for time that passed,
			// and a busy object would supply successes within milliseconds.
			sleep(attempts, jitter(pause), new(<-chan struct{}))
		default:
			sleep(attempts, jitter(pause), &changed)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case attempts.Err() != nil:
			last := w.last
			if open > 0 {
				last = fmt.Errorf("open, but only %d of %d times in a row", open, p.Stable)
			}
			return &TimeoutError{Gate: g.Name, Timeout: p.Timeout, Last: last, Since: time.Since(w.since)}
		case err != nil:
			pause = min(2*pause, p.Most)
		}
	}
}

// waiting remembers the last answer and since when it has been the same.
type waiting struct {
	report func(error)
	last   error
	heard  bool
	since  time.Time
}

func (w *waiting) answer(err error) {
	if w.heard && sameAnswer(w.last, err) {
		return
	}
	w.heard, w.last, w.since = true, err, time.Now()
	if w.report != nil {
		w.report(err)
	}
}

func sameAnswer(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

func sleep(ctx context.Context, d time.Duration, changed *<-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case _, ok := <-*changed:
		if !ok {
			*changed = nil // the watch has ended: poll from here on
		}
	}
}

// jitter spreads a pause over ±20 %, so that gates which fail together do not ask together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
