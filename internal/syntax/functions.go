package syntax

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// Functions returns the functions of expressions. It leaves out those whose errors quote their argument, such
// as parseint and jsondecode: it may be a secret.
func Functions() map[string]function.Function { return functions() }

// Each expression needs them.
var functions = sync.OnceValue(func() map[string]function.Function {
	return map[string]function.Function{
		// numbers
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc,
		// strings
		"chomp": stdlib.ChompFunc, "format": stdlib.FormatFunc, "formatlist": stdlib.FormatListFunc,
		"indent": stdlib.IndentFunc, "join": stdlib.JoinFunc, "lower": stdlib.LowerFunc,
		"replace": stdlib.ReplaceFunc, "split": stdlib.SplitFunc, "substr": stdlib.SubstrFunc,
		"title": stdlib.TitleFunc, "trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc,
		"trimspace": stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc, "upper": stdlib.UpperFunc,
		// collections
		"coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc,
		"compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc,
		"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc,
		"keys": stdlib.KeysFunc, "length": stdlib.LengthFunc, "lookup": stdlib.LookupFunc,
		"merge": stdlib.MergeFunc, "range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc,
		"setintersection": stdlib.SetIntersectionFunc, "setsubtract": stdlib.SetSubtractFunc,
		"setunion": stdlib.SetUnionFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc,
		"values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,
		// conversions
		"jsonencode": stdlib.JSONEncodeFunc, "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"tomap":    stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),
		"toset":    stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
		"tostring": stdlib.MakeToFunc(cty.String),
	}
})

// TypeText writes a type as it stands in Terraform, optional attributes included.
func TypeText(t cty.Type) string {
	switch {
	case t.IsCollectionType():
		kind, _, _ := strings.Cut(t.FriendlyName(), " ") // list of string
		return kind + "(" + TypeText(t.ElementType()) + ")"
	case t.IsObjectType():
		attributes := t.AttributeTypes()
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			field := TypeText(attributes[name])
			if t.AttributeOptional(name) {
				field = "optional(" + field + ")"
			}
			fields = append(fields, name+" = "+field)
		}
		return "object({ " + strings.Join(fields, ", ") + " })"
	}
	return typeexpr.TypeString(t)
}
