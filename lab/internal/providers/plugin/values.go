package plugin

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Values are an object's attributes and blocks by name. The accessors return the zero value for an
// absent, null or unknown value.
type Values map[string]cty.Value

// Known reports whether the value is there, not null and known in all its parts.
func (v Values) Known(name string) bool {
	x, ok := v[name]
	return ok && !x.IsNull() && x.IsWhollyKnown()
}

// Unknown reports whether the value is known only after apply.
func (v Values) Unknown(name string) bool {
	x, ok := v[name]
	return ok && !x.IsWhollyKnown()
}

// String returns a string.
func (v Values) String(name string) string {
	if !v.Known(name) {
		return ""
	}
	return v[name].AsString()
}

// Int returns a whole number.
func (v Values) Int(name string) int64 {
	if !v.Known(name) {
		return 0
	}
	n, _ := v[name].AsBigFloat().Int64()
	return n
}

// Bool returns a bool.
func (v Values) Bool(name string) bool { return v.Known(name) && v[name].True() }

// Strings returns the elements of a list or set of strings.
func (v Values) Strings(name string) []string {
	if !v.Known(name) {
		return nil
	}
	var all []string
	for _, x := range v[name].AsValueSlice() {
		if !x.IsNull() {
			all = append(all, x.AsString())
		}
	}
	return all
}

// Map returns a map of strings; nil if there is none.
func (v Values) Map(name string) map[string]string {
	if !v.Known(name) {
		return nil
	}
	all := map[string]string{}
	for key, x := range v[name].AsValueMap() {
		if !x.IsNull() {
			all[key] = x.AsString()
		}
	}
	return all
}

// Object returns a nested object's values; nil if there is none. Parts may be unknown.
func (v Values) Object(name string) Values {
	x, ok := v[name]
	if !ok {
		return nil
	}
	return valuesOf(x)
}

// Objects returns the values of each element of a list of objects. Parts may be unknown.
func (v Values) Objects(name string) []Values {
	x, ok := v[name]
	if !ok || x.IsNull() || !x.IsKnown() {
		return nil
	}
	var all []Values
	for _, element := range x.AsValueSlice() {
		all = append(all, valuesOf(element))
	}
	return all
}

func valuesOf(x cty.Value) Values {
	if x == cty.NilVal || x.IsNull() || !x.IsKnown() {
		return nil
	}
	return x.AsValueMap()
}

// Text is a string value; null for an empty string.
func Text(s string) cty.Value {
	if s == "" {
		return cty.NullVal(cty.String)
	}
	return cty.StringVal(s)
}

// StringMap is a map of strings; null for a nil map.
func StringMap(m map[string]string) cty.Value {
	if m == nil {
		return cty.NullVal(cty.Map(cty.String))
	}
	values := map[string]cty.Value{}
	for key, x := range m {
		values[key] = cty.StringVal(x)
	}
	if len(values) == 0 {
		return cty.MapValEmpty(cty.String)
	}
	return cty.MapVal(values)
}

// Object is a nested object; give every attribute.
func Object(v Values) cty.Value { return cty.ObjectVal(v) }

// object makes a value of the block's type. Values absent from v are null, an absent list of blocks
// is empty, and write-only attributes are always null.
func (b Block) object(v Values) (cty.Value, error) {
	all := map[string]cty.Value{}
	for name, a := range b.Attributes {
		x, ok := v[name]
		if !ok || a.WriteOnly {
			x = cty.NullVal(a.valueType())
		}
		converted, err := convert.Convert(x, a.valueType())
		if err != nil {
			return cty.NilVal, fmt.Errorf("attribute %s: %w", name, err)
		}
		all[name] = converted
	}
	for name, n := range b.Blocks {
		x, ok := v[name]
		if !ok {
			x = n.none()
		}
		converted, err := convert.Convert(x, n.Mode.of(n.Block.Type()))
		if err != nil {
			return cty.NilVal, fmt.Errorf("block %s: %w", name, err)
		}
		all[name] = converted
	}
	for name := range v {
		if _, ok := all[name]; !ok {
			return cty.NilVal, fmt.Errorf("no attribute or block is called %s", name)
		}
	}
	return cty.ObjectVal(all), nil
}

func (n NestedBlock) none() cty.Value {
	switch object := n.Block.Type(); n.Mode {
	case List:
		return cty.ListValEmpty(object)
	case Set:
		return cty.SetValEmpty(object)
	default:
		return cty.NullVal(object)
	}
}
