package gate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// nudges counts a gate's nudges, and answers as told, then with nothing.
type nudges struct {
	answers []nudged
	at      []time.Duration
	start   time.Time
}

type nudged struct {
	did string
	err error
}

func (n *nudges) nudge(context.Context) (string, error) {
	n.at = append(n.at, time.Since(n.start))
	if len(n.at) > len(n.answers) {
		return "", nil
	}
	a := n.answers[len(n.at)-1]
	return a.did, a.err
}

func TestWhatStandsStillIsNudgedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nudges{start: time.Now()}
		g := script(errClosed).gate()
		g.Nudge, g.Changed = n.nudge, always
		if err := Wait(t.Context(), g, Policy{Timeout: time.Minute}, Listener{}); err == nil {
			t.Fatal("a closed gate opened")
		}
		if len(n.at) < 10 || n.at[0] < patience {
			t.Fatalf("nudged at %v, want every few seconds, but not at first", n.at)
		}
		for i := range n.at[1:] {
			if n.at[i+1]-n.at[i] < patience {
				t.Errorf("nudged at %v: too often", n.at)
			}
		}
	})
}

func TestAnOpenGateIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nudges{start: time.Now()}
		g := script(nil).gate()
		g.Nudge = n.nudge
		if err := Wait(t.Context(), g, Policy{Stable: 10, First: 5 * time.Second}, Listener{}); err != nil {
			t.Fatal(err)
		}
		if len(n.at) > 0 {
			t.Errorf("an open gate was nudged at %v", n.at)
		}
	})
}

func TestWhatANudgeDidIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreachable := errors.New("connection refused")
		n := &nudges{start: time.Now(), answers: []nudged{
			{err: unreachable}, {err: unreachable}, {did: "asked apps to reconcile"}, {}, {err: unreachable},
		}}
		g := script(errClosed).gate()
		g.Nudge = n.nudge
		var heard []string
		listener := Listener{Nudge: func(did string, err error) {
			if err != nil {
				did = err.Error()
			}
			heard = append(heard, did)
		}}
		var timeout *TimeoutError
		if err := Wait(t.Context(), g, Policy{Timeout: time.Minute}, listener); !errors.As(err, &timeout) {
			t.Fatalf("got %v: a nudge that fails ends no wait", err)
		}
		if want := []string{"connection refused", "asked apps to reconcile", "connection refused"}; !slices.Equal(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
	})
}

func TestCancellationDuringANudgeIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupted := errors.New("interrupt")
		ctx, cancel := context.WithCancelCause(t.Context())
		g := script(errClosed).gate()
		g.Nudge = func(ctx context.Context) (string, error) {
			cancel(interrupted)
			return "", ctx.Err()
		}
		heard := func(did string, err error) { t.Errorf("heard %q (%v) of a wait that is over", did, err) }
		if err := Wait(ctx, g, Policy{}, Listener{Nudge: heard}); err != interrupted {
			t.Errorf("got %v, want the cause", err)
		}
	})
}
