package run

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/secret"
)

func TestAnInterruptPrintsWhatAKillWouldLose(t *testing.T) {
	since := time.Now()
	plan := event.Operation{Layer: "networking", Stage: "pool", Command: "plan", Since: since}
	vm := event.Operation{
		Layer:   "platform",
		Stage:   "machines",
		Command: "apply",
		Address: `vm.cp["01"]`,
		Action:  "create",
		Since:   since,
	}
	clock := since.Format(time.TimeOnly)
	lines := map[string]string{
		"plan": "\n  networking/pool: terraform plan since " + clock + " (0s)",
		"vm":   "\n  platform/machines: create vm.cp[\"01\"] since " + clock + " (0s)",
	}
	for _, c := range []struct {
		kind  event.Kind
		times int
		works []event.Operation
		want  string
	}{
		{event.Interrupted, 1, nil,
			"interrupted; no Terraform operation running, and castle starts nothing new"},
		{event.Interrupted, 1, []event.Operation{plan, vm},
			"interrupted; Terraform finishes its operations and saves its state:" +
				lines["plan"] + lines["vm"]},
		{event.Waiting, 1, []event.Operation{vm}, "still waiting for Terraform:" + lines["vm"]},
		{event.Interrupted, 2, []event.Operation{plan},
			"still waiting for Terraform; a third interrupt kills it, and nothing is lost:" + lines["plan"]},
		{event.Interrupted, 2, []event.Operation{plan, vm},
			"still waiting for Terraform; a third interrupt kills it, and these may be missing " +
				"in its state or half-made (the same command looks for them):" + lines["vm"]},
		{event.Interrupted, 3, []event.Operation{plan}, "killed; nothing was lost"},
		{event.Interrupted, 3, []event.Operation{vm},
			"killed; these may be missing in its state or half-made (the same command looks for them):" +
				lines["vm"]},
	} {
		if got := interruptText(c.kind,
			event.Interruption{Times: c.times, Operations: c.works}); got != c.want {
			t.Errorf("%s %d: got\n%s\nwant\n%s", c.kind, c.times, got, c.want)
		}
	}
}

// recorder keeps the events that it receives.
type recorder struct{ events []event.Event }

func (h *recorder) Report(e event.Event) { h.events = append(h.events, e) }

func TestAnInterruptedRunRepeatsWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var announced recorder
		c := &cluster.Cluster{Options: cluster.Options{Reporter: &announced}, Masker: &secret.Masker{}}
		r := &Run{Cluster: c}
		r.activate()
		working := []event.Operation{{Layer: "platform", Stage: "machines", Command: "apply"}}
		r.running = func() []event.Operation { return working }
		c.Active().Interrupt(1)
		time.Sleep(3*reminder + time.Second)
		c.Active().Interrupt(2)
		if r.deactivate(); c.Active() != nil {
			t.Error("the run has ended and is still active")
		}
		time.Sleep(10 * reminder)
		var got []string
		for _, e := range announced.events {
			got = append(got, string(e.Kind))
		}
		if strings.Join(got, " ") != "interrupted waiting waiting waiting interrupted" {
			t.Errorf("got %q", got)
		}
		if last := announced.events[4].Interruption; last.Times != 2 || len(last.Operations) != 1 {
			t.Errorf("the second: %+v", last)
		}
	})
}
