package cli

import (
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/operation/waves"
)

// A wave may allow a failure, and somebody may interrupt the command of one cluster: the run is no success.
func TestAFleetWithAnInterruptedClusterHasNotSucceeded(t *testing.T) {
	s := waves.Summary{Results: []event.Event{
		{Kind: event.ClusterEnded, Ending: &event.Ending{Result: event.OutcomeSucceeded}},
		{Kind: event.ClusterEnded, Ending: &event.Ending{Result: event.OutcomeInterrupted,
			ExitCode: exitInterrupted}}}}
	if code := exitCode(fleetError(t.Context(), s)); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	s.Results = s.Results[:1]
	if err := fleetError(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// What a cluster was refused for good is refused again with the others.
func TestAFleetIsResumedUnlessAClusterIsRefusedAgain(t *testing.T) {
	const again = "castle fleet create --all"
	refused := event.Cause{Text: "it would harm machines"}
	known := event.Cause{Text: "the CA has expired", Next: "kubectl logs"}
	for name, c := range map[string]struct {
		code   int
		resume string // of the cluster's own run
		cause  event.Cause
		want   string
	}{
		"a failed stage":               {exitFailed, "castle create blue", known, again},
		"a foreign VM":                 {exitPreflight, "castle create blue", refused, again},
		"a lock":                       {exitLocked, "", refused, again},
		"a machine that it would harm": {exitPreflight, "", refused, ""},
		"a node that is left over":     {exitGate, "", known, ""},
		"an invalid configuration":     {exitUsage, "", refused, ""},
	} {
		a := &app{interrupts: interrupts{command: again}}
		e := a.fleetEnding(t.Context(), waves.Summary{Red: "one", Results: []event.Event{
			{Kind: event.ClusterEnded, Cluster: "blue/pve", Ending: &event.Ending{Result: event.OutcomeFailed,
				ExitCode: c.code, Resume: c.resume, Causes: []event.Cause{c.cause}}},
			{Cluster: "red/pve", Text: waves.NotBegun}}}, time.Second)
		if e.Resume != c.want || e.ExitCode != c.code || e.Causes[0].Next != c.cause.Next {
			t.Errorf("%s: got %+v", name, e)
		}
	}
}
