package random

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
)

func count(s, of string) int {
	n := 0
	for _, c := range s {
		if strings.ContainsRune(of, c) {
			n++
		}
	}
	return n
}

func TestAPasswordHasWhatWasAskedFor(t *testing.T) {
	r := plugintest.New(t, New(), "random_password")
	config := plugin.Values{
		"length": cty.NumberIntVal(12), "upper": cty.False, "numeric": cty.False,
		"min_special": cty.NumberIntVal(5), "override_special": cty.StringVal("_-"),
	}
	if diagnostics := r.Apply(config); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Detail)
	}
	result := r.State.GetAttr("result").AsString()
	if len(result) != 12 || count(result, "_-") < 5 || count(result, "_-abcdefghijklmnopqrstuvwxyz") != 12 {
		t.Errorf("password %q", result)
	}
	if !r.State.GetAttr("number").RawEquals(cty.False) {
		t.Error("number does not follow numeric")
	}
	r.Settled(config)
	config["numeric"] = cty.True
	if p, _ := r.Plan(config); len(p.Replaces) != 2 {
		t.Errorf("replaces %v", p.Replaces)
	}
}

func TestAPasswordThatCannotBeIsRefused(t *testing.T) {
	r := plugintest.New(t, New(), "random_password")
	config := plugin.Values{"length": cty.NumberIntVal(4)}
	for _, class := range []string{"upper", "lower", "numeric", "special"} {
		config[class] = cty.False
	}
	if diagnostics := r.Apply(config); len(diagnostics) != 1 || !r.State.IsNull() {
		t.Errorf("a password of no characters: %v", diagnostics)
	}
}
