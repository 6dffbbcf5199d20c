package ui_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/ui"
)

// gateEvent is one answer of a gate.
func gateEvent(gate, why string) event.Event {
	e := event.Event{Time: time.Now(), Kind: event.GateOpen, Layer: "networking", Stage: "metallb",
		Gate: gate}
	if why != "" {
		e.Kind, e.Text = event.GateClosed, why
	}
	return e
}

// buffer is written to by a timer's goroutine.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestAGateThatOpensAtOnceHasNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &buffer{}
		l := ui.NewLines(w, ui.Options{})
		l.Report(gateEvent("workload.controller", "0 of 1 available"))
		time.Sleep(time.Second)
		l.Report(gateEvent("workload.controller", ""))
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.String(); got != "" {
			t.Errorf("got %q, want nothing", got)
		}
	})
}

func TestAClosedGatePrintsItsLastReasonFromTimeToTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &buffer{}
		l := ui.NewLines(w, ui.Options{})
		l.Report(gateEvent("webhook.objects", "no caBundle yet"))
		time.Sleep(2 * time.Second)
		l.Report(gateEvent("webhook.objects", "connection refused"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		const reason = "gate webhook.objects closed: connection refused"
		if got := w.String(); strings.Contains(got, "caBundle") || !strings.Contains(got, reason) {
			t.Errorf("after four seconds: %q, want the last reason alone", got)
		}
		for _, why := range []string{"no caBundle yet", "connection refused", "not checked"} {
			l.Report(gateEvent("webhook.objects", why))
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		l.Report(gateEvent("webhook.objects", ""))
		got := w.String()
		if strings.Count(got, "closed") != 2 || !strings.Contains(got, "not checked") ||
			!strings.Contains(got, "gate webhook.objects open") {
			t.Errorf("afterwards: %q, want one more reason, the last, and that it opened", got)
		}
	})
}

func TestAStageThatHasEndedPrintsNoClosedGates(t *testing.T) {
	for name, end := range map[string]event.Event{
		"a stage that has ended":   {Kind: event.StageStopped},
		"gates that nobody awaits": {Kind: event.StepEnded, Step: "gates"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &buffer{}
				l := ui.NewLines(w, ui.Options{})
				l.Report(gateEvent("webhook.objects", "connection refused"))
				end.Time, end.Layer, end.Stage = time.Now(), "networking", "metallb"
				l.Report(end)
				before := w.String()
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := w.String(); got != before {
					t.Errorf("got %q afterwards", strings.TrimPrefix(got, before))
				}
			})
		})
	}
}

func TestVerbosePrintsEveryGateResult(t *testing.T) {
	w := &buffer{}
	l := ui.NewLines(w, ui.Options{Verbose: true})
	l.Report(gateEvent("workload.controller", "0 of 1 available"))
	l.Report(gateEvent("workload.controller", ""))
	if got := w.String(); !strings.Contains(got, "0 of 1 available") || !strings.Contains(got, "open") {
		t.Errorf("got %q, want both answers", got)
	}
}

func TestATriggeredReconcileIsPrinted(t *testing.T) {
	w := &buffer{}
	l := ui.NewLines(w, ui.Options{})
	e := gateEvent("flux.converged", "")
	e.Kind, e.Text = event.ReconcileTriggered, "asked kustomization flux-system/apps to reconcile"
	l.Report(e)
	if got := w.String(); !strings.Contains(got, "gate flux.converged: asked kustomization "+
		"flux-system/apps to reconcile\n") {
		t.Errorf("got %q", got)
	}
}

func TestGatesThatAreClosedForOneReasonShareALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &buffer{}
		l := ui.NewLines(w, ui.Options{})
		l.Report(gateEvent("condition.nodes", "no Node exists yet"))
		time.Sleep(time.Second)
		l.Report(gateEvent("condition.disks", "no Node exists yet"))
		l.Report(gateEvent("webhook.objects", "connection refused"))
		other := gateEvent("condition.other", "no Node exists yet")
		other.Stage = "pool"
		l.Report(other)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		l.Report(gateEvent("condition.disks", ""))
		got := w.String()
		for _, want := range []string{
			"metallb         gates condition.disks, condition.nodes closed: no Node exists yet\n",
			"metallb         gate webhook.objects closed: connection refused\n",
			"pool            gate condition.other closed: no Node exists yet\n",
			"metallb         gate condition.disks open\n",
		} {
			if strings.Count(got, want) != 1 {
				t.Errorf("got\n%s\nwithout %q", got, want)
			}
		}
		if n := strings.Count(got, "\n"); n != 4 {
			t.Errorf("%d lines:\n%s", n, got)
		}
	})
}
