package tfeval

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/ephemeral-castle/castle/internal/config"
)

// functions are those that behave as Terraform's do. Nothing is marked as sensitive
// here, so sensitive and nonsensitive return their argument.
func functions() map[string]function.Function {
	all := maps.Clone(config.Functions())
	delete(all, "replace") // Terraform's knows regular expressions
	maps.Copy(all, map[string]function.Function{
		"alltrue":      allFunc(true),
		"anytrue":      allFunc(false),
		"base64encode": fixed(base64Encode, cty.String, cty.String),
		"can":          tryfunc.CanFunc,
		"cidrhost":     fixed(cidrHost, cty.String, cty.String, cty.Number),
		"coalesce":     coalesceFunc(),
		"endswith":     partFunc(strings.HasSuffix),
		"length":       fixed(length, cty.Number, cty.DynamicPseudoType),
		"jsondecode":   stdlib.JSONDecodeFunc,
		"nonsensitive": sameFunc(),
		"regex":        stdlib.RegexFunc,
		"sensitive":    sameFunc(),
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
}

// impl computes a function of known values.
type impl = func(args []cty.Value) (cty.Value, error)

func fixed(of impl, result cty.Type, params ...cty.Type) function.Function {
	spec := &function.Spec{
		Type: function.StaticReturnType(result),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return of(args) },
	}
	for _, t := range params {
		spec.Params = append(spec.Params, function.Parameter{
			Name: "value", Type: t, AllowDynamicType: t == cty.DynamicPseudoType,
		})
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

// cidrHost counts addresses of an IPv4 network, from its end if negative.
func cidrHost(args []cty.Value) (cty.Value, error) {
	prefix, err := netip.ParsePrefix(args[0].AsString())
	if err != nil || !prefix.Addr().Is4() {
		return cty.NilVal, fmt.Errorf("invalid CIDR expression: %w", err)
	}
	host, _ := args[1].AsBigFloat().Int64()
	size := int64(1) << (32 - prefix.Bits())
	if host < 0 {
		host += size
	}
	if host < 0 || host >= size {
		return cty.NilVal, fmt.Errorf("prefix of %d has no host number %d", prefix.Bits(), host)
	}
	b := prefix.Masked().Addr().As4()
	for i, n := 3, host; n > 0; i, n = i-1, n>>8 {
		b[i] |= byte(n)
	}
	return cty.StringVal(netip.AddrFrom4(b).String()), nil
}

func anything() function.Parameter {
	return function.Parameter{
		Name: "value", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true,
		AllowDynamicType: true,
	}
}

func sameFunc() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{anything()},
		Type:   func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
		Impl:   func(args []cty.Value, _ cty.Type) (cty.Value, error) { return args[0], nil },
	})
}

// coalesceFunc passes over empty strings too, as Terraform's does.
func coalesceFunc() function.Function {
	values := anything()
	return function.New(&function.Spec{
		VarParam: &values,
		Type: func(args []cty.Value) (cty.Type, error) {
			types := make([]cty.Type, len(args))
			for i, v := range args {
				types[i] = v.Type()
			}
			common, _ := convert.UnifyUnsafe(types)
			if common == cty.NilType {
				return cty.NilType, errors.New("all arguments must have the same type")
			}
			return common, nil
		},
		Impl: func(args []cty.Value, want cty.Type) (cty.Value, error) {
			for _, v := range args {
				v, err := convert.Convert(v, want)
				switch {
				case err != nil:
					return cty.NilVal, err
				case !v.IsKnown():
					return cty.UnknownVal(want), nil
				case v.IsNull() || want == cty.String && v.AsString() == "":
					continue
				}
				return v, nil
			}
			return cty.NilVal, errors.New("no non-null, non-empty-string arguments")
		},
	})
}
