package gate

import (
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
)

func TestAbsentNullAndUnknownValuesAreZero(t *testing.T) {
	for name, v := range map[string]Values{
		"absent":  {},
		"null":    {"a": cty.NullVal(cty.DynamicPseudoType)},
		"unknown": {"a": cty.DynamicVal},
	} {
		t.Run(name, func(t *testing.T) {
			into := []string{"untouched"}
			if err := v.Decode("a", &into); err != nil || into[0] != "untouched" {
				t.Errorf("decoded %v (%v)", into, err)
			}
			if v.Has("a") || v.String("a") != "" || v.Int("a") != 0 || v.Bool("a") || v.Duration("a") != 0 {
				t.Error("there is a value")
			}
		})
	}
}

func TestValuesAreRead(t *testing.T) {
	v := Values{
		"s": cty.StringVal("90s"), "n": cty.NumberIntVal(3), "half": cty.NumberFloatVal(1.5), "b": cty.True,
		"l": cty.ListVal([]cty.Value{cty.StringVal("a"), cty.StringVal("b")}),
	}
	var list []string
	if err := v.Decode("l", &list); err != nil || len(list) != 2 || list[1] != "b" {
		t.Errorf("decoded %v (%v)", list, err)
	}
	if !v.Has("s") || v.String("s") != "90s" || v.Duration("s") != 90*time.Second || v.Int("n") != 3 ||
		v.Int("half") != 0 || !v.Bool("b") {
		t.Error("a value is read wrongly")
	}
}

func TestDurationsAndCountsAreChecked(t *testing.T) {
	for text, good := range map[string]bool{"90s": true, "1h30m": true, "0s": false, "-5m": false, "5": false,
		"": false} {
		if err := ValidDuration(cty.StringVal(text)); (err == nil) != good {
			t.Errorf("duration %q: %v", text, err)
		}
	}
	for number, good := range map[float64]bool{1: true, 3: true, 0: false, -1: false, 1.5: false} {
		if err := ValidCount(cty.NumberFloatVal(number)); (err == nil) != good {
			t.Errorf("count %v: %v", number, err)
		}
	}
}
