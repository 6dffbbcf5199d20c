package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errClosed = errors.New("0 of 1 ready")

// scripted is a gate that gives these answers, then repeats the last one,
// and records when it was checked.
type scripted struct {
	answers []error
	checks  []time.Duration
	start   time.Time
}

func script(answers ...error) *scripted { return &scripted{answers: answers, start: time.Now()} }

func (s *scripted) gate() Gate {
	return Gate{Name: "workload.web", Check: func(context.Context) error {
		s.checks = append(s.checks, time.Since(s.start))
		return s.answers[min(len(s.checks), len(s.answers))-1]
	}}
}

func TestWaitOpensAtTheFirstSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(errClosed, errClosed, nil)
		if err := Wait(t.Context(), s.gate(), Policy{}, Listener{}); err != nil {
			t.Fatal(err)
		}
		if len(s.checks) != 3 {
			t.Errorf("checked %d times, want 3", len(s.checks))
		}
	})
}

func TestAFailureResetsStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(nil, nil, errClosed, nil, nil, nil)
		if err := Wait(t.Context(), s.gate(), Policy{Stable: 3}, Listener{}); err != nil {
			t.Fatal(err)
		}
		if len(s.checks) != 6 {
			t.Errorf("opened after %d answers, want all 6", len(s.checks))
		}
	})
}

func TestChangesDoNotShortenStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(nil)
		g := s.gate()
		g.Changed = func(ctx context.Context) <-chan struct{} { return always(ctx) }
		if err := Wait(t.Context(), g, Policy{Stable: 3, First: time.Second}, Listener{}); err != nil {
			t.Fatal(err)
		}
		if took := s.checks[2] - s.checks[0]; took < 1600*time.Millisecond {
			t.Errorf("three successes within %s count as stable", took)
		}
	})
}

func TestATimeoutKeepsTheLastReasonAndItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{start: time.Now()}
		g := Gate{Name: "workload.web", Check: func(context.Context) error {
			s.checks = append(s.checks, time.Since(s.start))
			if time.Since(s.start) < 5*time.Minute {
				return errors.New("does not exist yet")
			}
			return errClosed
		}}
		err := Wait(t.Context(), g, Policy{Timeout: 20 * time.Minute}, Listener{})
		var timeout *TimeoutError
		if !errors.As(err, &timeout) || !errors.Is(err, errClosed) {
			t.Fatalf("got %v, want a time-out that wraps the last reason", err)
		}
		if took := time.Since(s.start); took != 20*time.Minute {
			t.Errorf("gave up after %s", took)
		}
		if timeout.Since < 14*time.Minute || timeout.Since > 15*time.Minute {
			t.Errorf("the reason is %s old, want about 15m", timeout.Since)
		}
		for _, part := range []string{"gate workload.web: timed out after 20m0s; for the last 1",
			"0 of 1 ready"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	})
}

func TestATimeoutDuringAnAttemptKeepsTheReasonBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		g := Gate{Name: "nodes.ready", Check: func(ctx context.Context) error {
			if first {
				first = false
				return errClosed
			}
			<-ctx.Done()
			return fmt.Errorf("get nodes: %w", ctx.Err())
		}}
		err := Wait(t.Context(), g, Policy{Timeout: time.Minute}, Listener{})
		if !errors.Is(err, errClosed) || strings.Contains(err.Error(), "get nodes") {
			t.Errorf("got %v, want the answer of the attempt that finished", err)
		}
	})
}

func TestAnAttemptThatWasCutOffIsNotTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		g := Gate{Name: "talos_etcd.voters", Check: func(ctx context.Context) error {
			if first {
				first = false
				return errClosed
			}
			<-ctx.Done()
			return errors.New("cp-01 gives no answer")
		}}
		err := Wait(t.Context(), g, Policy{Timeout: time.Minute}, Listener{})
		if !errors.Is(err, errClosed) {
			t.Errorf("got %v, want the answer of the attempt that finished", err)
		}
	})
}

func TestATimeoutReportsANewReasonWithoutItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g := Gate{Name: "nodes.ready", Check: func(context.Context) error {
			return fmt.Errorf("%s of 9h",
				time.Since(start))
		}}
		err := Wait(t.Context(), g, Policy{Timeout: time.Minute, Most: 250 * time.Millisecond}, Listener{})
		if err == nil || !strings.Contains(err.Error(), "timed out after 1m0s; last answer: ") {
			t.Errorf("got %v", err)
		}
	})
}

func TestATimeoutReportsThatNoAttemptFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Gate{Name: "nodes.ready", Check: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		err := Wait(t.Context(), g, Policy{Timeout: time.Minute}, Listener{})
		if err == nil || !strings.Contains(err.Error(), "no attempt finished") {
			t.Errorf("got %v", err)
		}
	})
}

func TestATimeoutOfAnOpenGateReportsInstability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := script(nil).gate()
		err := Wait(t.Context(), g, Policy{Stable: 3, First: time.Minute, Most: time.Minute,
			Timeout: 90 * time.Second}, Listener{})
		var timeout *TimeoutError
		if !errors.As(err, &timeout) || !strings.HasSuffix(err.Error(),
			"open, but only 2 of 3 times in a row") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAPermanentErrorEndsTheWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(errClosed, fmt.Errorf("object: %w", Permanent(errors.New("forbidden"))))
		err := Wait(t.Context(), s.gate(), Policy{}, Listener{})
		if !IsPermanent(err) || err.Error() != "gate workload.web: object: forbidden" {
			t.Errorf("got %v", err)
		}
		if len(s.checks) != 2 {
			t.Errorf("checked %d times, want 2", len(s.checks))
		}
	})
}

func TestPermanentOfNothingIsNothing(t *testing.T) {
	if Permanent(nil) != nil || IsPermanent(nil) || IsPermanent(errClosed) {
		t.Error("what nobody marked is permanent")
	}
}

func TestCancellationIsNeverSuccess(t *testing.T) {
	interrupted := errors.New("interrupt")
	for name, check := range map[string]func(context.Context) error{
		"an open answer":      func(context.Context) error { return nil },
		"a closed answer":     func(context.Context) error { return errClosed },
		"a permanent answer":  func(context.Context) error { return Permanent(errClosed) },
		"the context's error": func(ctx context.Context) error { return ctx.Err() },
	} {
		t.Run("during an attempt with "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				g := Gate{Name: "nodes.ready", Check: func(ctx context.Context) error {
					cancel(interrupted)
					return check(ctx)
				}}
				if err := Wait(ctx, g, Policy{}, Listener{}); err != interrupted {
					t.Errorf("got %v, want the cause", err)
				}
			})
		})
	}
	t.Run("during a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { cancel(interrupted) })
			start := time.Now()
			if err := Wait(ctx, script(errClosed).gate(), Policy{}, Listener{}); err != interrupted {
				t.Errorf("got %v, want the cause", err)
			}
			if took := time.Since(start); took != time.Minute {
				t.Errorf("ended after %s, want at once", took)
			}
		})
	})
	t.Run("by the caller's deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeoutCause(t.Context(), time.Minute, interrupted)
			defer stop()
			if err := Wait(ctx, script(errClosed).gate(), Policy{}, Listener{}); err != interrupted {
				t.Errorf("got %v, want the caller's cause and no time-out of the gate", err)
			}
		})
	})
}

func TestOnlyChangesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := errors.New(errClosed.Error()) // equal in words, which is what a person sees
		s := script(errClosed, again, nil, nil, errClosed, nil, nil, nil)
		var got []string
		report := func(err error) {
			if err == nil {
				got = append(got, "open")
				return
			}
			got = append(got, err.Error())
		}
		if err := Wait(t.Context(), s.gate(), Policy{Stable: 3}, Listener{Answer: report}); err != nil {
			t.Fatal(err)
		}
		want := []string{"0 of 1 ready", "open", "0 of 1 ready", "open"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestPausesDoubleUpToTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(errClosed, errClosed, errClosed, errClosed, errClosed, nil)
		if err := Wait(t.Context(), s.gate(), Policy{First: time.Second, Most: 4 * time.Second},
			Listener{}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []time.Duration{1, 2, 4, 4, 4} {
			want *= time.Second
			if pause := s.checks[i+1] - s.checks[i]; pause < want*8/10 || pause > want*12/10 {
				t.Errorf("pause %d is %s, want %s give or take a fifth", i+1, pause, want)
			}
		}
	})
}

func TestWhatNoWatchSeesIsAskedForTwiceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unseen := fmt.Errorf("wrapped: %w", &Finding{Text: "connection refused", Unwatched: true})
		s := script(errClosed, errClosed, errClosed, errClosed, unseen, unseen, unseen, unseen, nil)
		if err := Wait(t.Context(), s.gate(), Policy{}, Listener{}); err != nil {
			t.Fatal(err)
		}
		for i := 5; i < len(s.checks); i++ {
			if pause := s.checks[i] - s.checks[i-1]; pause > 500*time.Millisecond {
				t.Errorf("pause %d is %s, want half a second at most", i, pause)
			}
		}
	})
}

func TestASuccessStartsThePausesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(errClosed, errClosed, errClosed, nil, nil)
		if err := Wait(t.Context(), s.gate(), Policy{Stable: 2, First: time.Second, Most: time.Minute},
			Listener{}); err != nil {
			t.Fatal(err)
		}
		if pause := s.checks[4] - s.checks[3]; pause > 1200*time.Millisecond {
			t.Errorf("the second success was checked for after %s, want about 1s", pause)
		}
	})
}

func TestAWaitThatIsGivenUpChecksOnceMore(t *testing.T) {
	for name, tt := range map[string]struct {
		last error
		want string
	}{
		"closed": {errors.New("1 of 2 ready"),
			"gate workload.web: closed after 10s, when another gate failed; " +
				"last answer: 1 of 2 ready"},
		"as before": {errClosed,
			"gate workload.web: closed after 10s, when another gate failed; " +
				"for the last 10s: 0 of 1 ready"},
		"open": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				giveUp, start, late := make(chan struct{}), time.Now(), 0
				time.AfterFunc(10*time.Second, func() { close(giveUp) })
				g := Gate{Name: "workload.web", Check: func(ctx context.Context) error {
					if time.Since(start) < 10*time.Second {
						return errClosed
					}
					if late++; ctx.Err() != nil {
						t.Error("the last attempt was cut off")
					}
					return tt.last
				}}
				p := Policy{Timeout: time.Hour, First: time.Minute, GiveUp: giveUp}
				got := ""
				if err := Wait(t.Context(), g, p, Listener{}); err != nil {
					got = err.Error()
				}
				if got != tt.want || late != 1 || time.Since(start) != 10*time.Second {
					t.Errorf("after %s and %d last attempts: %q, want %q", time.Since(start), late, got,
						tt.want)
				}
			})
		})
	}
}

func TestALastAttemptIsBoundedAndEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		giveUp := make(chan struct{})
		close(giveUp)
		hangs := Gate{Name: "workload.web", Check: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		start := time.Now()
		err := Wait(t.Context(), hangs, Policy{GiveUp: giveUp}, Listener{})
		if e := (*TimeoutError)(nil); !errors.As(err, &e) || !e.GaveUp || e.Last != nil ||
			time.Since(start) != lastAttempt {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		interrupted := errors.New("interrupted")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(interrupted) })
		if err := Wait(ctx, hangs, Policy{GiveUp: giveUp}, Listener{}); err != interrupted {
			t.Errorf("got %v", err)
		}
	})
}
