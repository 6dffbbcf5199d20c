package tfeval

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"github.com/zclconf/go-cty/cty/gocty"

	"github.com/ephemeral-castle/castle/internal/syntax"
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

// Strings returns the strings in a value, at any depth, without empty ones.
func Strings(v cty.Value) (all []string) {
	if v == cty.NilVal {
		return nil
	}
	_ = cty.Walk(v, func(_ cty.Path, inner cty.Value) (bool, error) { // the function returns no error
		if text := Text(inner); text != "" {
			all = append(all, text)
		}
		return true, nil
	})
	return all
}

// Printed returns a string, a number or a bool as a string, and "" for everything else.
func Printed(v cty.Value) string {
	if !known(v) || !v.Type().IsPrimitiveType() {
		return ""
	}
	v, _ = convert.Convert(v, cty.String) // every primitive type has a text
	return Text(v)
}

// Whole returns a whole number.
func Whole(v cty.Value) (n int, ok bool) {
	ok = known(v) && v.Type() == cty.Number && gocty.FromCtyValue(v, &n) == nil
	return n, ok
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

// StandIn replaces the unknown parts of v by values of their types, such as an empty collection.
func StandIn(v cty.Value) cty.Value {
	stood, _ := cty.Transform(v, func(_ cty.Path, v cty.Value) (cty.Value, error) { // which never fails
		if v.IsKnown() {
			return v, nil
		}
		return zero(v.Type()), nil
	})
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

// functions are those that behave as Terraform's do. Nothing is marked as sensitive
// here, so sensitive and nonsensitive return their argument.
var functions = sync.OnceValue(func() map[string]function.Function {
	all := maps.Clone(syntax.Functions())
	delete(all, "replace") // Terraform's knows regular expressions
	maps.Copy(all, map[string]function.Function{
		"alltrue":      allFunc(true),
		"anytrue":      allFunc(false),
		"base64encode": fixed(base64Encode, cty.String, cty.String),
		"can":          tryfunc.CanFunc,
		"cidrhost":     fixed(cidrHost, cty.String, cty.String, cty.Number),
		"coalesce":     anything(coalesce),
		"endswith":     partFunc(strings.HasSuffix),
		"length":       fixed(length, cty.Number, cty.DynamicPseudoType),
		"jsondecode":   stdlib.JSONDecodeFunc,
		"nonsensitive": anything(same),
		"regex":        stdlib.RegexFunc,
		"sensitive":    anything(same),
		"signum":       stdlib.SignumFunc,
		"startswith":   partFunc(strings.HasPrefix),
		"strcontains":  partFunc(strings.Contains),
		"tobool":       stdlib.MakeToFunc(cty.Bool),
		"tonumber":     stdlib.MakeToFunc(cty.Number),
		"try":          tryfunc.TryFunc,
		// Every JSON text is YAML, and means the same document.
		"yamlencode": stdlib.JSONEncodeFunc,
	})
	return all
})

// impl computes a function of known values.
type impl = func(args []cty.Value) (cty.Value, error)

func fixed(of impl, result cty.Type, params ...cty.Type) function.Function {
	spec := &function.Spec{
		Type: function.StaticReturnType(result),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return of(args) },
	}
	for _, t := range params {
		spec.Params = append(spec.Params, function.Parameter{Name: "value", Type: t, AllowDynamicType: true})
	}
	return function.New(spec)
}

// allFunc is alltrue, or anytrue: one element can decide against the others.
func allFunc(all bool) function.Function {
	return fixed(func(args []cty.Value) (cty.Value, error) {
		result := cty.BoolVal(all)
		for _, v := range args[0].AsValueSlice() {
			switch {
			case v.IsNull():
				return cty.False, nil
			case !v.IsKnown():
				result = cty.UnknownVal(cty.Bool)
			case v.True() != all:
				return v, nil
			}
		}
		return result, nil
	}, cty.Bool, cty.List(cty.Bool))
}

func base64Encode(args []cty.Value) (cty.Value, error) {
	return cty.StringVal(base64.StdEncoding.EncodeToString([]byte(args[0].AsString()))), nil
}

func partFunc(has func(s, part string) bool) function.Function {
	return fixed(func(args []cty.Value) (cty.Value, error) {
		return cty.BoolVal(has(args[0].AsString(), args[1].AsString())), nil
	}, cty.Bool, cty.String, cty.String)
}

// length counts the characters of a string too.
func length(args []cty.Value) (cty.Value, error) {
	if args[0].Type() == cty.String {
		return stdlib.Strlen(args[0])
	}
	return stdlib.Length(args[0])
}

// cidrHost counts addresses of a network, from its end if negative.
func cidrHost(args []cty.Value) (cty.Value, error) {
	prefix, err := netip.ParsePrefix(args[0].AsString())
	if err != nil {
		return cty.NilVal, fmt.Errorf("invalid CIDR expression %s", args[0].AsString())
	}
	network := prefix.Masked().Addr().AsSlice()
	host, _ := args[1].AsBigFloat().Int(nil)
	size := new(big.Int).Lsh(big.NewInt(1), uint(len(network)*8-prefix.Bits()))
	if host.Sign() < 0 {
		host.Add(host, size)
	}
	if host.Sign() < 0 || host.Cmp(size) >= 0 {
		return cty.NilVal, fmt.Errorf("prefix of %d has no host number %d", prefix.Bits(), host)
	}
	address, _ := netip.AddrFromSlice(host.Add(host, new(big.Int).SetBytes(network)).FillBytes(network))
	return cty.StringVal(address.String()), nil
}

// anything makes a function of values of any types, which may be unknown.
func anything(of impl) function.Function {
	return function.New(&function.Spec{
		VarParam: &function.Parameter{Name: "value", Type: cty.DynamicPseudoType, AllowNull: true,
			AllowUnknown: true, AllowDynamicType: true},
		Type: func(args []cty.Value) (cty.Type, error) {
			v, err := of(args)
			return v.Type(), err
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return of(args) },
	})
}

func same(args []cty.Value) (cty.Value, error) { return args[0], nil }

// coalesce passes over empty strings too, as Terraform's does.
func coalesce(args []cty.Value) (cty.Value, error) {
	empty := func(v cty.Value) bool { return v.RawEquals(cty.StringVal("")) }
	return stdlib.Coalesce(slices.DeleteFunc(slices.Clone(args), empty)...)
}
