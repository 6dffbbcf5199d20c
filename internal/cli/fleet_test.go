package cli

import (
	"testing"

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
