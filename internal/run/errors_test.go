package run

import (
	"errors"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

func TestPreflightErrorEndsInLinesToPaste(t *testing.T) {
	err := &PreflightError{
		Preflight: "vm_ids.free", TerraformCommand: "castle terraform blue machines --",
		First: "castle create blue --only keys",
		Foreign: []gate.Foreign{
			{
				What:   `VM 421 "a"`,
				Why:    "no tags",
				Fixes:  []string{"remove it"},
				Import: &gate.Import{Address: `vm.node["it's"]`, ID: "pve/421"},
			},
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
    - if the object in the state is gone for good, remove it from the state:
      castle create blue --only keys
      castle terraform blue machines -- state rm 'vm.node["b"]'`
	if got := err.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOnlyAFailureOfTerraformNamesItsLog(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		next string
	}{
		"a step":     {&StepError{"apply", errors.New("the rack is on fire")}, "less '/runs/1/pool.log'"},
		"an init":    {&terraform.Error{Command: "init"}, "less '/runs/1/pool.log'"},
		"a refusal":  {&StepError{"apply", &PreflightError{Preflight: "vm_ids.free"}}, ""},
		"no answer":  {NoAnswer("vm_ids.free", errors.New("connection refused")), ""},
		"not chosen": {errors.New("needed but not selected"), ""},
	} {
		found := (&StageError{Stage: "pool", Err: tt.err, Log: "/runs/1/pool.log"}).causes()
		if len(found) != 1 || found[0].cause.Next != tt.next {
			t.Errorf("%s: got %+v, want %q", name, found, tt.next)
		}
	}
}
