package run

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
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
