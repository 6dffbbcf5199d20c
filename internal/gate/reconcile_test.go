package gate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// triggers records when a gate triggers a reconcile; it returns the answers, then nothing.
type triggers struct {
	answers []triggered
	at      []time.Duration
	start   time.Time
}

type triggered struct {
	did string
	err error
}

func (n *triggers) trigger(context.Context) (string, error) {
	n.at = append(n.at, time.Since(n.start))
	if len(n.at) > len(n.answers) {
		return "", nil
	}
	a := n.answers[len(n.at)-1]
	return a.did, a.err
}

func TestAClosedGateTriggersReconcilesAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &triggers{start: time.Now()}
		g := script(errClosed).gate()
		g.TriggerReconcile, g.Changed = n.trigger, always
		if err := Wait(t.Context(), g, Policy{Timeout: time.Minute}, Listener{}); err == nil {
			t.Fatal("a closed gate opened")
		}
		if len(n.at) < 10 || n.at[0] < reconcilePause {
			t.Fatalf("triggered at %v, want every few seconds, but not at first", n.at)
		}
		for i := range n.at[1:] {
			if n.at[i+1]-n.at[i] < reconcilePause {
				t.Errorf("triggered at %v: too often", n.at)
			}
		}
	})
}

func TestAnOpenGateTriggersNoReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &triggers{start: time.Now()}
		g := script(nil).gate()
		g.TriggerReconcile = n.trigger
		if err := Wait(t.Context(), g, Policy{Stable: 10, First: 5 * time.Second}, Listener{}); err != nil {
			t.Fatal(err)
		}
		if len(n.at) > 0 {
			t.Errorf("an open gate was triggered at %v", n.at)
		}
	})
}

func TestAListenerReceivesWhatAReconcileDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreachable := errors.New("connection refused")
		n := &triggers{start: time.Now(), answers: []triggered{
			{err: unreachable}, {err: unreachable}, {did: "asked apps to reconcile"}, {}, {err: unreachable},
		}}
		g := script(errClosed).gate()
		g.TriggerReconcile = n.trigger
		var got []string
		listener := Listener{Reconcile: func(did string, err error) {
			if err != nil {
				did = err.Error()
			}
			got = append(got, did)
		}}
		var timeout *TimeoutError
		if err := Wait(t.Context(), g, Policy{Timeout: time.Minute}, listener); !errors.As(err, &timeout) {
			t.Fatalf("got %v: a failed trigger must not end the wait", err)
		}
		if want := []string{"connection refused", "asked apps to reconcile",
			"connection refused"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestCancellationDuringAReconcileIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupted := errors.New("interrupt")
		ctx, cancel := context.WithCancelCause(t.Context())
		g := script(errClosed).gate()
		g.TriggerReconcile = func(ctx context.Context) (string, error) {
			cancel(interrupted)
			return "", ctx.Err()
		}
		got := func(did string, err error) { t.Errorf("got %q (%v) after the wait was over", did, err) }
		if err := Wait(ctx, g, Policy{}, Listener{Reconcile: got}); err != interrupted {
			t.Errorf("got %v, want the cause", err)
		}
	})
}
