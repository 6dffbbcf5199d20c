package run

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestScopeHasTheOutputsOfItsMoment(t *testing.T) {
	o := NewOutputs(&secret.Masker{})
	a, b := &config.Stage{Name: "a", Layer: "storage"}, &config.Stage{Name: "b", Layer: "storage"}
	set := func(s *config.Stage, name, value string) {
		o.Set(s, map[string]state.Output{name: {Value: cty.StringVal(value)}})
	}
	set(a, "class", "first")
	before := o.Scope(a)
	set(a, "size", "big") // it has no class any more
	set(b, "pool", "warm")
	now := o.Scope(b)
	if len(before.Outputs["storage"]) != 1 || before.Self["class"] != cty.StringVal("first") {
		t.Errorf("an earlier scope has changed: %v, %v", before.Outputs, before.Self)
	}
	if got := now.Outputs["storage"]; len(got) != 2 || got["size"] != cty.StringVal("big") ||
		got["pool"] != cty.StringVal("warm") || len(now.Self) != 1 {
		t.Errorf("got %v, self %v", got, now.Self)
	}
}
