package castle

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestWhatIsNotOpenIsCounted(t *testing.T) {
	for want, report := range map[string]GateReport{
		"1 of 3 gates is closed":                                  {Stages: []StageGates{{Gates: gates(true, false, true)}}},
		"2 of 3 gates are closed; could not be asked: pool, sync": {Stages: []StageGates{{Gates: gates(false)}, missing("pool"), {Gates: gates(true, false)}, missing("sync")}},
		"could not be asked: pool":                                {Stages: []StageGates{{Gates: gates(true)}, missing("pool")}},
	} {
		if err := report.Closed(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := (GateReport{Stages: []StageGates{{Gates: gates(true, true)}, {}}}).Closed(); err != nil {
		t.Errorf("all open: %v", err)
	}
}

func gates(open ...bool) (all []GateStatus) {
	for _, o := range open {
		all = append(all, GateStatus{Open: o})
	}
	return all
}

// missing is a stage that was never created; its gates do not count.
func missing(name string) StageGates {
	return StageGates{Name: name, Missing: "never created", Gates: gates(false, false)}
}

func TestPreflightErrorEndsInLinesToPaste(t *testing.T) {
	err := &PreflightError{
		Preflight: "vm_ids.free", Terraform: "castle terraform blue machines --", First: "castle create blue --only keys",
		Foreign: []gate.Foreign{
			{What: `VM 421 "a"`, Why: "no tags", Fixes: []string{"remove it"}, Import: &gate.Import{Address: `vm.node["it's"]`, ID: "pve/421"}},
			{What: `VM 422 "b"`, ConflictsWith: `vm.node["b"]`},
		},
	}
	want := `preflight vm_ids.free:
  VM 421 "a"
    no tags
    - remove it
    - if it is this cluster's own after all, import it:
      castle create blue --only keys
      castle terraform blue machines -- import 'vm.node["it'\''s"]' pve/421
  VM 422 "b"
    - if what the state knows instead is gone for good, forget that:
      castle create blue --only keys
      castle terraform blue machines -- state rm 'vm.node["b"]'`
	if got := err.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
