package tfeval

import (
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// known reports whether v has a value.
func known(v cty.Value) bool { return v != cty.NilVal && v.IsKnown() && !v.IsNull() }

// Text returns a string, and "" for everything else.
func Text(v cty.Value) string {
	if !known(v) || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

// Printed returns a string, a number or a bool as a string, and "" for everything else.
func Printed(v cty.Value) string {
	if !known(v) || !v.Type().IsPrimitiveType() {
		return ""
	}
	v, err := convert.Convert(v, cty.String)
	if err != nil {
		return ""
	}
	return Text(v)
}

// Whole returns a whole number.
func Whole(v cty.Value) (int, bool) {
	if !known(v) || v.Type() != cty.Number || !v.AsBigFloat().IsInt() {
		return 0, false
	}
	n, _ := v.AsBigFloat().Int64()
	return int(n), true
}

// Attribute returns an attribute of an object; unknown if it has none.
func Attribute(v cty.Value, name string) cty.Value {
	if !known(v) || !v.Type().IsObjectType() || !v.Type().HasAttribute(name) {
		return cty.DynamicVal
	}
	return v.GetAttr(name)
}

// Elements returns the elements of a list, a tuple or a set.
func Elements(v cty.Value) []cty.Value {
	if !known(v) || !(v.Type().IsListType() || v.Type().IsTupleType() || v.Type().IsSetType()) {
		return nil
	}
	return v.AsValueSlice()
}

// Map returns the elements of a map or an object.
func Map(v cty.Value) map[string]cty.Value {
	if !known(v) || !(v.Type().IsMapType() || v.Type().IsObjectType()) {
		return nil
	}
	return v.AsValueMap()
}

// StandIn replaces the unknown parts of v by values of their types: a word for a string, and an empty
// collection.
func StandIn(v cty.Value) cty.Value {
	stood, err := cty.Transform(v, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		return zero(v.Type()), nil
	})
	if err != nil {
		return v
	}
	return stood
}

func zero(t cty.Type) cty.Value {
	switch {
	case t == cty.String, t == cty.DynamicPseudoType:
		return cty.StringVal("stand-in")
	case t == cty.Number:
		return cty.NumberIntVal(1)
	case t == cty.Bool:
		return cty.False
	case t.IsListType():
		return cty.ListValEmpty(t.ElementType())
	case t.IsSetType():
		return cty.SetValEmpty(t.ElementType())
	case t.IsMapType():
		return cty.MapValEmpty(t.ElementType())
	case t.IsObjectType():
		attributes := map[string]cty.Value{}
		for name, of := range t.AttributeTypes() {
			attributes[name] = zero(of)
		}
		return cty.ObjectVal(attributes)
	}
	return cty.NullVal(t)
}
