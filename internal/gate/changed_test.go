package gate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// signals returns a Changed that signals a change at each of these times.
func signals(times ...time.Duration) func(context.Context) <-chan struct{} {
	return func(context.Context) <-chan struct{} {
		changed := make(chan struct{}, 1)
		for _, at := range times {
			time.AfterFunc(at, func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			})
		}
		return changed
	}
}

func TestChangedWakesAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(errClosed, nil)
		g := s.gate()
		g.Changed = signals(time.Second)
		if err := Wait(t.Context(), g, Policy{First: time.Minute, Most: time.Minute},
			Listener{}); err != nil {
			t.Fatal(err)
		}
		if s.checks[1] != time.Second {
			t.Errorf("checked again after %s, want at the change", s.checks[1])
		}
	})
}

func TestAChangeDuringAnAttemptMakesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checked := 0
		g := Gate{
			Name: "workload.web", Changed: signals(time.Second),
			Check: func(context.Context) error {
				if checked++; checked > 1 {
					return nil
				}
				time.Sleep(2 * time.Second) // it has looked before the change
				return errClosed
			},
		}
		start := time.Now()
		if err := Wait(t.Context(), g, Policy{First: time.Hour, Most: time.Hour, Timeout: time.Hour},
			Listener{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("a change was found after %s", took)
		}
	})
}

func TestABusyObjectIsCheckedTenTimesASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(errClosed)
		g := s.gate()
		g.Changed = always
		if err := Wait(t.Context(), g, Policy{First: time.Minute, Timeout: 10 * time.Second},
			Listener{}); err == nil {
			t.Fatal("a closed gate opened")
		}
		if n := len(s.checks); n > 105 || n < 90 {
			t.Errorf("checked %d times in ten seconds, want about a hundred", n)
		}
	})
}

func TestAFewChangesAreSeenWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(errClosed)
		g := s.gate()
		// A rollout's changes, after a busy while and a quiet one.
		var busy []time.Duration
		for at := time.Second; at < 4*time.Second; at += 10 * time.Millisecond {
			busy = append(busy, at)
		}
		g.Changed = signals(append(busy, 10*time.Second, 10*time.Second+15*time.Millisecond,
			10*time.Second+50*time.Millisecond)...)
		if err := Wait(t.Context(), g, Policy{First: time.Minute, Timeout: 11 * time.Second},
			Listener{}); err == nil {
			t.Fatal("a closed gate opened")
		}
		want := []time.Duration{0, 15 * time.Millisecond, 50 * time.Millisecond}
		last := s.checks[len(s.checks)-3:]
		for i := range want {
			if late := last[i] - 10*time.Second - want[i]; late < 0 || late > 40*time.Millisecond {
				t.Errorf("change %d was looked at after %s", i, late)
			}
		}
	})
}

func TestAChangeStartsThePausesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(errClosed)
		g := s.gate()
		g.Changed = signals(30 * time.Second)
		if err := Wait(t.Context(), g, Policy{Timeout: 33 * time.Second}, Listener{}); err == nil {
			t.Fatal("a closed gate opened")
		}
		var after []time.Duration
		for _, at := range s.checks {
			if at >= 30*time.Second {
				after = append(after, at-30*time.Second)
			}
		}
		if len(after) < 4 || after[0] != 0 || after[1] > 300*time.Millisecond ||
			after[2] > 900*time.Millisecond {
			t.Errorf("checked %v after the change, want at once, and then after pauses that begin anew",
				after)
		}
	})
}

func TestAWatchThatEndsLeavesPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		close(ended)
		s := script(errClosed, errClosed, errClosed, nil)
		g := s.gate()
		g.Changed = func(context.Context) <-chan struct{} { return ended }
		if err := Wait(t.Context(), g, Policy{First: time.Minute, Most: time.Minute},
			Listener{}); err != nil {
			t.Fatal(err)
		}
		if took := s.checks[3]; took < 3*48*time.Second {
			t.Errorf("checked 4 times within %s", took)
		}
	})
}

func TestTheWatchEndsWithTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watching context.Context
		g := script(errClosed, nil).gate()
		g.Changed = func(ctx context.Context) <-chan struct{} { watching = ctx; return nil }
		if err := Wait(t.Context(), g, Policy{}, Listener{}); err != nil {
			t.Fatal(err)
		}
		if watching.Err() == nil {
			t.Error("the watch outlives its wait")
		}
	})
}

func TestAnOpenGateIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := script(nil).gate()
		g.Changed = func(context.Context) <-chan struct{} {
			t.Error("a watch was begun for nothing")
			return nil
		}
		if err := Wait(t.Context(), g, Policy{Stable: 3}, Listener{}); err != nil {
			t.Fatal(err)
		}
	})
}

// always is a watch that never rests.
func always(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{})
	go func() {
		for {
			select {
			case changed <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return changed
}
