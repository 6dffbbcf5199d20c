package talos_test

import (
	"slices"
	"sync"
	"time"
)

// clock is the fleet's time. It stops until it is advanced, and runs due timers in
// the caller's goroutine, so that none is still running afterwards.
type clock struct {
	mu     sync.Mutex
	now    time.Duration
	timers []*timer
}

type timer struct {
	due time.Duration
	run func()
}

func (c *clock) afterFunc(d time.Duration, run func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, &timer{due: c.now + d, run: run})
}

// advance lets d pass.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	end := c.now + d
	c.mu.Unlock()
	for t := c.next(end); t != nil; t = c.next(end) {
		t.run()
	}
}

// next takes out the first timer that is due by end and goes to its time, or to
// end if there is none.
func (c *clock) next(end time.Duration) *timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *timer
	for _, t := range c.timers {
		if t.due <= end && (first == nil || t.due < first.due) {
			first = t
		}
	}
	if first == nil {
		c.now = end
		return nil
	}
	c.now = max(c.now, first.due)
	c.timers = slices.DeleteFunc(c.timers, func(x *timer) bool { return x == first })
	return first
}
