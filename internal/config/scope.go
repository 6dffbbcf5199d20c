package config

import (
	"fmt"
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// Scope is the outputs that are known when an expression is evaluated.
type Scope struct {
	Outputs map[string]map[string]cty.Value // by layer, merged from its stages
	Self    map[string]cty.Value            // the stage's own outputs, for gates
}

// Inputs returns the value of every variable that has one. A layer's output
// that sc lacks is an error that names the stage and the output.
func (s *Stage) Inputs(sc Scope) (map[string]cty.Value, hcl.Diagnostics) {
	var diags, more hcl.Diagnostics
	inputs := make(map[string]cty.Value, len(s.bindings))
	for name := range s.bindings {
		inputs[name], more = s.input(name, sc)
		diags = append(diags, more...)
	}
	return inputs, InOrder(distinct(diags))
}

// KnownInputs returns the values of the variables as far as they are known before a run,
// given the outputs that are known.
func (s *Stage) KnownInputs(outputs map[string]map[string]cty.Value) map[string]cty.Value {
	sc := s.unknownScope()
	for layer, known := range outputs {
		maps.Copy(sc.Outputs[layer], known)
	}
	inputs, _ := s.Inputs(sc) // Load has reported what is wrong
	return inputs
}

// input returns the value of one variable.
func (s *Stage) input(name string, sc Scope) (cty.Value, hcl.Diagnostics) {
	b, v := s.bindings[name], s.Variables[name]
	if b.Value != cty.NilVal {
		return b.Value, nil
	}
	x, diags := s.evaluate(b.expr, sc)
	if diags.HasErrors() {
		return cty.UnknownVal(v.Type), diags
	}
	settled, err := v.settle(x)
	if err != nil {
		summary := fmt.Sprintf("stage %s: unsuitable input %s", s.Name, name)
		return cty.UnknownVal(v.Type), hcl.Diagnostics{problem(b.expr.Range(), summary, "%s.", err)}
	}
	return settled, nil
}

// evaluate returns the value of an expression whose references are checked. It looks
// up the names of the expression alone, so that it works as soon as those are known.
func (s *Stage) evaluate(expr hcl.Expression, sc Scope) (cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	found := make(map[string]map[string]cty.Value)
	for _, r := range references(expr) {
		var v cty.Value
		var more hcl.Diagnostics
		switch r.root {
		case "cluster":
			continue
		case "var":
			v, more = s.input(r.name, sc)
		case "self":
			v, more = s.output(r, sc.Self, s)
		default:
			v, more = s.output(r, sc.Outputs[r.root], s.cluster.owners[r.root][r.name])
		}
		diags = append(diags, more...)
		if found[r.root] == nil {
			found[r.root] = make(map[string]cty.Value)
		}
		found[r.root][r.name] = v
	}
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	ctx := s.cluster.context()
	for root, names := range found {
		ctx.Variables[root] = cty.ObjectVal(names)
	}
	v, diags := expr.Value(ctx)
	return v, plain(diags)
}

// output looks up the output that r names among the known ones.
func (s *Stage) output(r reference, known map[string]cty.Value, owner *Stage) (cty.Value, hcl.Diagnostics) {
	if v, ok := known[r.name]; ok {
		return v, nil
	}
	d := problem(r.at, fmt.Sprintf("stage %s: %s.%s is not known", s.Name, r.root, r.name),
		"It is an output of stage %s, which has not been applied or does not set it.", owner.Name)
	return cty.DynamicVal, hcl.Diagnostics{d}
}

// context returns the values and functions that every expression may use.
func (c *Cluster) context() *hcl.EvalContext {
	return &hcl.EvalContext{
		Functions: Functions(),
		Variables: map[string]cty.Value{"cluster": cty.ObjectVal(map[string]cty.Value{
			"name":     cty.StringVal(c.Name),
			"platform": cty.StringVal(c.Platform),
		})},
	}
}

// unknownScope is the scope of a stage before a run: every output is unknown.
func (s *Stage) unknownScope() Scope {
	sc := Scope{Outputs: make(map[string]map[string]cty.Value), Self: make(map[string]cty.Value)}
	for layer, owners := range s.cluster.owners {
		sc.Outputs[layer] = make(map[string]cty.Value)
		for name := range owners {
			sc.Outputs[layer][name] = cty.DynamicVal
		}
	}
	for name := range s.Outputs {
		sc.Self[name] = cty.DynamicVal
	}
	return sc
}

// Functions returns the functions of expressions. It leaves out those whose errors quote their argument, such
// as parseint and jsondecode: it may be a secret.
func Functions() map[string]function.Function {
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
}
