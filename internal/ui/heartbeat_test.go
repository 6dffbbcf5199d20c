package ui_test

import (
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

// printed returns the lines that run makes a reporter print.
func printed(t *testing.T, run func(report func(event.Event))) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &buffer{}
		run(ui.NewLines(w, false, false).Report)
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
		report(machines(event.ResourceStarted, address(`vm.node["cp-01"]`)))
		time.Sleep(5 * time.Second)
		report(machines(event.ResourceStarted, address(`vm.node["cp-02"]`)))
		time.Sleep(10 * time.Second)
		report(machines(event.Resource, address(`vm.node["cp-01"]`)))
		time.Sleep(3 * time.Minute)
		report(machines(event.StepEnded, step("apply", 200)))
		time.Sleep(time.Hour)
	})
	wantLines(t, got,
		`   15.0s  platform/machines          still applying: vm.node["cp-01"] 10s, and 1 more`,
		`   45.0s  platform/machines          still applying: vm.node["cp-02"] 35s`,
		`  105.0s  platform/machines          still applying: vm.node["cp-02"] 1m35s`,
		`  165.0s  platform/machines          still applying: vm.node["cp-02"] 2m35s`,
		`  200.0s  platform/machines          apply 200.0s`)
}

func TestEveryTerraformStepHasAHeartbeat(t *testing.T) {
	for name, want := range map[string]string{
		"plan": "planning", "apply": "applying", "destroy": "destroying", "import": "importing",
		"adopt": "importing",
	} {
		got := printed(t, func(report func(event.Event)) {
			report(machines(event.StepStarted, step(name, 0)))
			time.Sleep(20 * time.Second)
			report(machines(event.StageStopped))
			time.Sleep(time.Hour)
		})
		wantLines(t, got, "   15.0s  platform/machines          still "+want+": 15s",
			"   20.0s  platform/machines          interrupted")
	}
}

func TestAStepWithLinesHasNoHeartbeat(t *testing.T) {
	got := printed(t, func(report func(event.Event)) {
		report(machines(event.StepStarted, step("apply", 0)))
		for range 3 {
			time.Sleep(10 * time.Second)
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
	for _, name := range []string{"gates", "preflight", "terraform"} {
		got := printed(t, func(report func(event.Event)) {
			report(machines(event.StepStarted, step(name, 0)))
			time.Sleep(time.Hour)
		})
		wantLines(t, got)
	}
}
