package ui_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/ui"
)

// machines is an event of the stage platform/machines, now.
func machines(kind event.Kind, more ...func(*event.Event)) event.Event {
	e := event.Event{Time: time.Now(), Kind: kind, Layer: "platform", Stage: "machines"}
	for _, m := range more {
		m(&e)
	}
	return e
}

func address(a string) func(*event.Event) { return func(e *event.Event) { e.Address = a } }

// of is the number of resources in the plan.
func of(n int) func(*event.Event) { return func(e *event.Event) { e.Total = n } }

// printed returns the lines that run makes a reporter print.
func printed(t *testing.T, run func(report func(event.Event))) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &buffer{}
		run(ui.NewLines(w, ui.Options{}).Report)
		synctest.Wait()
		for line := range strings.Lines(w.String()) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	})
	return lines
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestALongApplyNamesItsResources(t *testing.T) {
	got := printed(t, func(report func(event.Event)) {
		report(machines(event.StepStarted, step("apply", 0)))
		time.Sleep(5 * time.Second)
		report(machines(event.ResourceStarted, address(`vm.node["cp-01"]`), of(18)))
		time.Sleep(5 * time.Second)
		report(machines(event.ResourceStarted, address(`vm.node["cp-02"]`), of(18)))
		time.Sleep(10 * time.Second)
		report(machines(event.Resource, address(`vm.node["cp-01"]`)))
		time.Sleep(time.Minute)
		report(machines(event.StepEnded, step("apply", 80)))
		time.Sleep(time.Hour)
	})
	wantLines(t, got,
		`   30.0s  platform/machines          still applying 1/18: vm.node["cp-02"] 20s`,
		`   60.0s  platform/machines          still applying 1/18: vm.node["cp-02"] 50s`,
		`   80.0s  platform/machines          apply 80.0s`)
}

func TestEveryStepThatTakesLongHasAReminder(t *testing.T) {
	for name, want := range map[string]string{
		"plan": "planning", "apply": "applying", "destroy": "destroying", "import": "importing",
		"adopt": "importing", "gates": "waiting for gates", "preflight": "running preflights",
	} {
		got := printed(t, func(report func(event.Event)) {
			report(machines(event.StepStarted, step(name, 0)))
			time.Sleep(40 * time.Second)
			report(machines(event.StageStopped))
			time.Sleep(time.Hour)
		})
		wantLines(t, got, "   30.0s  platform/machines          still "+want+": 30s",
			"   40.0s  platform/machines          interrupted")
	}
}

func TestAStageThatWaitsNamesItsGatesEvery30Seconds(t *testing.T) {
	closed := func(gate, why string, timeout float64) func(*event.Event) {
		return func(e *event.Event) { e.Gate, e.Text, e.TimeoutSeconds = gate, why, timeout }
	}
	got := printed(t, func(report func(event.Event)) {
		report(machines(event.StepStarted, step("gates", 0), of(3)))
		report(machines(event.GateClosed, closed("etcd.quorum", "1 of 3", 300)))
		time.Sleep(time.Second)
		report(machines(event.GateClosed, closed("nodes.ready", "0 of 5", 600)))
		report(machines(event.GateOpen, closed("tcp.api", "", 0)))
		time.Sleep(9 * time.Second)
		report(machines(event.GateClosed, closed("nodes.ready", "4 of 5", 600)))
		time.Sleep(30 * time.Second)
		report(machines(event.GateOpen, closed("etcd.quorum", "", 0)))
		time.Sleep(32 * time.Second)
		report(machines(event.GateOpen, closed("nodes.ready", "", 0)))
		report(machines(event.StepEnded, step("gates", 70)))
		time.Sleep(time.Hour)
	})
	wantLines(t, got,
		`    3.0s  platform/machines          gate etcd.quorum closed: 1 of 3`,
		`    4.0s  platform/machines          gate nodes.ready closed: 0 of 5`,
		`   13.0s  platform/machines          gate nodes.ready closed: 4 of 5`,
		`   40.0s  platform/machines          gate etcd.quorum open`,
		`   70.0s  platform/machines          still waiting for gates, 2/3 open: `+
			`nodes.ready 1m10s of 10m: 4 of 5 (1m00s)`,
		`   72.0s  platform/machines          gate nodes.ready open`,
		`   72.0s  platform/machines          gates 70.0s`)
}

func TestTimestampsBeginEachLine(t *testing.T) {
	var w bytes.Buffer
	l := ui.NewLines(&w, ui.Options{Timestamps: true})
	l.Report(event.Event{Time: began.Local(), Kind: event.Notice, Text: "taking over"})
	if want := began.Local().Format("15:04:05") + "     0.0s  note: taking over\n"; w.String() != want {
		t.Errorf("got %q, want %q", w.String(), want)
	}
}

func TestAStepWithLinesHasNoReminder(t *testing.T) {
	got := printed(t, func(report func(event.Event)) {
		report(machines(event.StepStarted, step("apply", 0)))
		for range 3 {
			time.Sleep(20 * time.Second)
			report(machines(event.Resource, address("vm.a"), func(e *event.Event) {
				e.Action, e.Text = "import", "done"
			}))
		}
		report(machines(event.StepEnded, step("apply", 0)))
		time.Sleep(time.Hour)
	})
	for _, line := range got {
		if strings.Contains(line, "still") {
			t.Errorf("got %q", line)
		}
	}
	if len(got) != 3 {
		t.Errorf("got %d lines, want those of the events alone", len(got))
	}
}

func TestOtherStepsHaveNoHeartbeat(t *testing.T) {
	got := printed(t, func(report func(event.Event)) {
		report(machines(event.StepStarted, step("terraform", 0)))
		time.Sleep(time.Hour)
	})
	wantLines(t, got)
}
