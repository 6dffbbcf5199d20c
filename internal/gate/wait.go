package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

	// A change is looked at at once, except for a breath after a closed answer. It
	// grows while the next change comes before the longest one has passed: a
	// rollout's few are seen without delay, a busy object ten times a second.
	breath        = 10 * time.Millisecond
	longestBreath = 100 * time.Millisecond
	// patience is how long a gate has been closed before it is nudged, and the
	// least time between two nudges.
	patience = 5 * time.Second
)

// Patience is how long the policy waits.
func (p Policy) Patience() time.Duration { return cmp.Or(p.Timeout, defaultTimeout) }

func (p Policy) withDefaults() Policy {
	p.Timeout = p.Patience()
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
	held := e.Since.Round(time.Second).String()
	if e.Since < time.Second {
		held = "moment"
	}
	return fmt.Sprintf("gate %s: not open after %s; for the last %s: %s", e.Gate, e.Timeout, held, last)
}

func (e *TimeoutError) Unwrap() error { return e.Last }

// Listener hears what a Wait learns and does while it does it. Both are optional.
type Listener struct {
	// Answer hears every answer that differs from the one before; nil for an open one.
	Answer func(closed error)
	// Nudge hears what a nudge did or, once, why it could not.
	Nudge func(did string, err error)
}

// Wait asks g until it has been open p.Stable times in a row. A closed answer
// resets the count. Wait ends with nil, a *TimeoutError, a Permanent error, or
// the cause of ctx's cancellation, which is never success.
//
// Between closed answers it pauses, each time for longer, until something has
// changed; a change that comes while an attempt runs makes another one. What a
// change sets off may go on where no watch sees it, so the pauses begin anew.
func Wait(ctx context.Context, g Gate, p Policy, l Listener) error {
	p = p.withDefaults()
	attempts, stop := context.WithTimeout(ctx, p.Timeout)
	defer stop()
	w := &waiting{gate: g, listener: l, breath: breath, since: time.Now(), nudged: time.Now()}
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
			// A watch must not hurry this pause: stable asks for time that passed,
			// and a busy object would supply successes within milliseconds.
			pause = p.First
			sleep(attempts, jitter(pause))
		case IsPermanent(err):
			return fmt.Errorf("gate %s: %w", g.Name, err)
		case attempts.Err() != nil && (w.heard || errors.Is(err, context.DeadlineExceeded)):
			// The attempt was cut off, in whose words ever: the answer before it is the last one.
		default:
			open = 0
			w.answer(err)
			w.listen(attempts)
			w.nudge(attempts)
			if w.rest(attempts, jitter(pause)) {
				pause = p.First
			} else {
				pause = min(2*pause, p.Most)
			}
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
		}
	}
}
