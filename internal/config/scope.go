package config

import (
	"fmt"
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// Scope is the outputs that are known when an expression is evaluated.
type Scope struct {
	Outputs map[string]map[string]cty.Value // by layer, merged from its stages
	Self    map[string]cty.Value            // the stage's own outputs, for gates
}

// Inputs returns the value of every variable that has one. A layer's output
// that sc lacks is an error that names the stage and the output.
func (s *Stage) Inputs(sc Scope) (map[string]cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	inputs := make(map[string]cty.Value, len(s.bindings))
	for name := range s.bindings {
		v, more := s.input(name, sc)
		diags = append(diags, more...)
		inputs[name] = v
	}
	return inputs, inOrder(distinct(diags))
}

// KnownInputs returns the values of the variables as far as they are known before a run,
// given the outputs that are known.
func (s *Stage) KnownInputs(outputs map[string]map[string]cty.Value) map[string]cty.Value {
	sc := s.unknownScope()
	for layer, known := range outputs {
		maps.Copy(sc.Outputs[layer], known)
	}
	inputs := make(map[string]cty.Value, len(s.bindings))
	for name := range s.bindings {
		inputs[name], _ = s.input(name, sc) // Load has reported what is wrong
	}
	return inputs
}

// input returns the value of one variable.
func (s *Stage) input(name string, sc Scope) (cty.Value, hcl.Diagnostics) {
	b, v := s.bindings[name], s.Variables[name]
	if b.expr == nil {
		return b.value, nil
	}
	x, diags := s.evaluate(b.expr, sc)
	if diags.HasErrors() {
		return cty.UnknownVal(v.Type), diags
	}
	settled, err := v.settle(x)
	if err != nil {
		return invalid(v.Type, b.expr.Range(), fmt.Sprintf("stage %s: unsuitable input %s", s.Name, name),
			"%s. The variable is %s, declared at %s.", err, v.constraint, place(v.declared))
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
	summary := fmt.Sprintf("stage %s: %s.%s is not known", s.Name, r.root, r.name)
	return invalid(cty.DynamicPseudoType, r.at, summary,
		"It is an output of stage %s, which has not been applied or does not set it.", owner.Name)
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
