package status

import (
	"testing"
)

func TestClosedErrorCountsGatesAndStages(t *testing.T) {
	for want, report := range map[string]GateReport{
		"1 of 3 gates is closed": {
			Stages: []StageGates{{Gates: openGates(true, false, true)}},
		},
		"2 of 3 gates are closed; could not be asked: pool, sync": {
			Stages: []StageGates{{Gates: openGates(false)}, missingStages("pool"),
				{Gates: openGates(true, false)}, missingStages("sync")},
		},
		"could not be asked: pool": {Stages: []StageGates{{Gates: openGates(true)}, missingStages("pool")}},
	} {
		if err := report.Closed(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := (GateReport{Stages: []StageGates{{Gates: openGates(true, true)}, {}}}).Closed(); err != nil {
		t.Errorf("all open: %v", err)
	}
}

func openGates(open ...bool) (all []GateStatus) {
	for _, o := range open {
		all = append(all, GateStatus{Open: o})
	}
	return all
}

// missingStages returns a stage that was never created; its gates do not count.
func missingStages(name string) StageGates {
	return StageGates{Name: name, Missing: "never created", Gates: openGates(false, false)}
}
