package gate

import (
	"fmt"
	"math/big"
	"time"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/gocty"
)

// Values are a block's arguments, converted to their attributes' types. An argument that was not given is
// absent. The accessors return the zero value for absent, null or unknown arguments.
type Values map[string]cty.Value

// Has reports whether the argument was given and is known.
func (v Values) Has(name string) bool {
	x, ok := v[name]
	return ok && x.IsWhollyKnown() && !x.IsNull()
}

// String returns a string argument.
func (v Values) String(name string) string {
	if !v.Has(name) {
		return ""
	}
	return v[name].AsString()
}

// Int returns a number argument that is a whole number.
func (v Values) Int(name string) int {
	if !v.Has(name) {
		return 0
	}
	n, accuracy := v[name].AsBigFloat().Int64()
	if accuracy != big.Exact {
		return 0
	}
	return int(n)
}

// Bool returns a bool argument.
func (v Values) Bool(name string) bool { return v.Has(name) && v[name].True() }

// Duration returns an argument such as "90s" that ValidDuration has accepted.
func (v Values) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(v.String(name)) //nolint:errcheck // ValidDuration has checked it
	return d
}

// Decode copies a list or map argument into the Go value that into points to. It does nothing for an absent
// argument.
func (v Values) Decode(name string, into any) error {
	if !v.Has(name) {
		return nil
	}
	return gocty.FromCtyValue(v[name], into)
}

// ValidDuration accepts a positive Go duration: "90s", "5m", "1h30m".
func ValidDuration(x cty.Value) error {
	d, err := time.ParseDuration(x.AsString())
	if err != nil || d <= 0 {
		return fmt.Errorf(`invalid duration %q; use "90s" or "5m"`, x.AsString())
	}
	return nil
}

// ValidCount accepts a whole number of at least one.
func ValidCount(x cty.Value) error {
	n, accuracy := x.AsBigFloat().Int64()
	if accuracy != big.Exact || n < 1 {
		return fmt.Errorf("invalid count %s; use a whole number of at least 1", x.AsBigFloat().Text('g', -1))
	}
	return nil
}
