package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Policy bounds a Wait. Zero fields take the defaults.
type Policy struct {
	Timeout time.Duration // from the first attempt to the last; default 10m
	Stable  int           // consecutive successes that open the gate; default 1
	First   time.Duration // pause after the first closed answer; default 250ms
	Most    time.Duration // the pause doubles up to this; default 5s
	// GiveUp, when closed, ends the wait after one last attempt.
	GiveUp <-chan struct{}
}

const (
	defaultTimeout = 10 * time.Minute
	defaultFirst   = 250 * time.Millisecond
	defaultMost    = 5 * time.Second

	// After a closed answer, changes are ignored for the settle time. It doubles while they come fast: a
	// rollout is seen without delay, a busy object ten times a second.
	settle        = 10 * time.Millisecond
	longestSettle = 100 * time.Millisecond
	// unwatchedPause is the longest pause, less jitter, after an answer that no watch would see change.
	unwatchedPause = 375 * time.Millisecond
	// reconcilePause is how long a gate is closed before a reconcile, and the least time between two.
	reconcilePause = 5 * time.Second
	// lastAttempt bounds the attempt after GiveUp.
	lastAttempt = 5 * time.Second
)

// EffectiveTimeout is the policy's timeout or the default.
func (p Policy) EffectiveTimeout() time.Duration { return cmp.Or(p.Timeout, defaultTimeout) }

func (p Policy) withDefaults() Policy {
	return Policy{
		Timeout: p.EffectiveTimeout(), Stable: cmp.Or(p.Stable, 1),
		First: cmp.Or(p.First, defaultFirst), Most: cmp.Or(p.Most, defaultMost), GiveUp: p.GiveUp,
	}
}

// TimeoutError is a gate that did not open in time, with its last answer.
type TimeoutError struct {
	Gate    string
	Timeout time.Duration
	Last    error         // the answer of the last finished attempt; nil if none finished
	Since   time.Duration // how long Last has been the answer
	GaveUp  bool          // the wait ended before its own timeout, after Timeout
}

func (e *TimeoutError) Error() string {
	text := fmt.Sprintf("gate %s: timed out after %s; ", e.Gate, e.Timeout)
	if e.GaveUp {
		text = fmt.Sprintf("gate %s: closed after %s, when another gate failed; ", e.Gate, e.Timeout)
	}
	if e.Last == nil {
		return text + "no attempt finished"
	}
	if e.Since >= time.Second {
		return fmt.Sprintf("%sfor the last %s: %s", text, e.Since.Round(time.Second), e.Last)
	}
	return text + "last answer: " + e.Last.Error()
}

func (e *TimeoutError) Unwrap() error { return e.Last }

// Listener receives the progress of a Wait. Both functions are optional.
type Listener struct {
	// Answer receives every answer that differs from the one before; nil for an open gate.
	Answer func(closed error)
	// Reconcile receives the result of TriggerReconcile or, once per error, its failure.
	Reconcile func(did string, err error)
}

// Wait checks g until it has been open p.Stable times in a row. A closed answer resets the count. Wait ends
// with nil, a *TimeoutError, also if it was given up, a Permanent error, or the cause of ctx's cancellation,
// which is never success. Between closed answers it pauses, each time for longer, or until something changed.
// After a change the pauses start anew: no watch may see the change's consequences.
func Wait(ctx context.Context, g Gate, p Policy, l Listener) error {
	p = p.withDefaults()
	attempts, stop := context.WithTimeout(ctx, p.Timeout)
	defer stop()
	go func() {
		select {
		case <-p.GiveUp:
			stop()
		case <-attempts.Done():
		}
	}()
	now := time.Now()
	w := &wait{gate: g, listener: l, settle: settle, began: now, since: now, reconciled: now}
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
			// No change shortens this pause: a busy object would supply all successes at once.
			pause = p.First
			Sleep(attempts, jitter(pause))
		case IsPermanent(err):
			return fmt.Errorf("gate %s: %w", g.Name, err)
		case attempts.Err() != nil && (w.answered || errors.Is(err, attempts.Err())):
			// The end of the wait cut this attempt off: the answer before it is the last one.
		default:
			open = 0
			w.answer(err)
			w.listen(attempts)
			w.reconcile(attempts)
			if f, is := errors.AsType[*Finding](err); is && f.Unwatched {
				pause = min(pause, unwatchedPause)
			}
			if w.pause(attempts, jitter(pause)) {
				pause = p.First
			} else {
				pause = min(2*pause, p.Most)
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case attempts.Err() != nil:
			return w.ended(ctx, p, open, errors.Is(attempts.Err(), context.Canceled))
		}
	}
}

// ended returns how a wait ended whose time is up or, after one last attempt, that was given up.
func (w *wait) ended(ctx context.Context, p Policy, open int, gaveUp bool) error {
	e := &TimeoutError{Gate: w.gate.Name, Timeout: p.Timeout, GaveUp: gaveUp}
	if gaveUp {
		attempt, stop := context.WithTimeout(ctx, lastAttempt)
		defer stop()
		err := w.gate.Check(attempt)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			open++
			w.answer(nil)
		case attempt.Err() == nil:
			open = 0
			w.answer(err)
		}
		e.Timeout = time.Since(w.began).Round(100 * time.Millisecond)
	}
	switch e.Last, e.Since = w.last, time.Since(w.since); {
	case open >= p.Stable, open > 0 && gaveUp: // it is not why the stage fails
		return nil
	case open > 0:
		e.Last = fmt.Errorf("open, but only %d of %d times in a row", open, p.Stable)
	}
	return e
}

// wait is the state of a Wait between attempts.
type wait struct {
	gate      Gate
	listener  Listener
	began     time.Time
	listening bool
	changed   <-chan struct{} // nil where nothing signals changes
	settle    time.Duration   // how long changes are not listened to

	answered bool
	last     error     // the last answer
	since    time.Time // of its first occurrence

	reconciled time.Time // the last trigger, or the beginning of the wait
	failed     string    // the last trigger's error
}

// listen subscribes to changes after the first closed answer: an open gate needs no watch.
func (w *wait) listen(ctx context.Context) {
	if w.gate.Changed != nil && !w.listening {
		w.listening, w.changed = true, w.gate.Changed(ctx)
	}
}

func (w *wait) answer(err error) {
	if w.answered && fmt.Sprint(w.last) == fmt.Sprint(err) {
		return
	}
	w.answered, w.last, w.since = true, err, time.Now()
	if w.listener.Answer != nil {
		w.listener.Answer(err)
	}
}

// reconcile triggers a reconcile unless it did so lately. It only reports a failure.
func (w *wait) reconcile(ctx context.Context) {
	if w.gate.TriggerReconcile == nil || time.Since(w.reconciled) < reconcilePause {
		return
	}
	did, err := w.gate.TriggerReconcile(ctx)
	w.reconciled = time.Now()
	failed := fmt.Sprint(err)
	report := did != "" || err != nil && failed != w.failed && ctx.Err() == nil
	w.failed = failed
	if report && w.listener.Reconcile != nil {
		w.listener.Reconcile(did, err)
	}
}

// pause sleeps for d, or, after the settle time, until something changed, which it reports.
func (w *wait) pause(ctx context.Context, d time.Duration) (changed bool) {
	first := min(w.settle, d)
	Sleep(ctx, first)
	began := time.Now()
	t := time.NewTimer(d - first)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			w.settle = settle
			return false
		case _, changed = <-w.changed:
			switch {
			case !changed:
				w.changed = nil // the watch has ended: only the pauses are left
			case time.Since(began) < longestSettle:
				w.settle = min(2*w.settle, longestSettle)
				return true
			default:
				w.settle = settle
				return true
			}
		}
	}
}

// Sleep waits, and reports whether ctx has not ended meanwhile.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// jitter spreads a pause over ±20 %, so that gates which fail together do not poll together.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5+1)
}
