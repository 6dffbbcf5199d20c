package check

import (
	"fmt"
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/ephemeral-castle/castle/internal/config"
)

// module is a stage's Terraform as far as it can be evaluated without Terraform:
// variables, locals, pure functions, and what somebody has asked of data sources.
type module struct {
	blocks    []*hclsyntax.Block
	locals    map[string]hcl.Expression
	variables map[string]cty.Value
	data      cty.Value // what data sources have said, if anybody asked them
	functions map[string]function.Function
	evaluated map[string]cty.Value // locals
	pending   map[string]bool      // locals that are being evaluated
}

// unknownError says what an expression needs that is not known here.
type unknownError struct{ what string }

func (e *unknownError) Error() string { return e.what + " is not known before a run" }

// readModule reads a stage's blocks; its variables have the values given.
func readModule(s *config.Stage, variables map[string]cty.Value) *module {
	m := &module{
		locals: map[string]hcl.Expression{}, variables: variables, functions: functions(),
		evaluated: map[string]cty.Value{}, pending: map[string]bool{},
	}
	for _, f := range s.Sources() {
		body, native := f.Body.(*hclsyntax.Body)
		if !native {
			continue // what only JSON says is not known here
		}
		for _, b := range body.Blocks {
			m.blocks = append(m.blocks, b)
			if b.Type != "locals" {
				continue
			}
			for name, attr := range b.Body.Attributes {
				m.locals[name] = attr.Expr
			}
		}
	}
	return m
}

// evaluate returns the value of an expression. beside are further names, such
// as each. It is an *unknownError where the expression needs more than the module has.
func (m *module) evaluate(expr hcl.Expression, beside map[string]cty.Value) (cty.Value, error) {
	if name := m.foreignCall(expr); name != "" {
		return cty.DynamicVal, &unknownError{"function " + name}
	}
	locals, variables := map[string]cty.Value{}, map[string]cty.Value{}
	for _, t := range expr.Variables() {
		root, name := t.RootName(), ""
		if len(t) > 1 {
			if step, ok := t[1].(hcl.TraverseAttr); ok {
				name = step.Name
			}
		}
		if _, ok := beside[root]; ok || root == "data" && m.data != cty.NilVal {
			continue
		}
		v, known := m.variables[name]
		switch {
		case root == "var" && known:
			variables[name] = v
		case root == "local" && m.locals[name] != nil:
			v, err := m.local(name)
			if err != nil {
				return cty.DynamicVal, err
			}
			locals[name] = v
		default:
			return cty.DynamicVal, &unknownError{root + "." + name}
		}
	}
	ctx := &hcl.EvalContext{Functions: m.functions, Variables: map[string]cty.Value{"local": cty.ObjectVal(locals), "var": cty.ObjectVal(variables)}}
	if m.data != cty.NilVal {
		ctx.Variables["data"] = m.data
	}
	maps.Copy(ctx.Variables, beside)
	v, diags := expr.Value(ctx)
	if diags.HasErrors() {
		// Without the expression's values, which may be secret.
		return cty.DynamicVal, fmt.Errorf("%s: %s", where(*diags[0].Subject), diags[0].Summary)
	}
	return v, nil
}

func (m *module) local(name string) (cty.Value, error) {
	if v, ok := m.evaluated[name]; ok {
		return v, nil
	}
	if m.pending[name] {
		return cty.DynamicVal, &unknownError{"local." + name}
	}
	m.pending[name] = true
	v, err := m.evaluate(m.locals[name], nil)
	delete(m.pending, name)
	if err == nil {
		m.evaluated[name] = v
	}
	return v, err
}

// foreignCall names a function in expr that is not evaluated here. It must be
// known before: can() would take its absence for a no.
func (m *module) foreignCall(expr hcl.Expression) string {
	node, ok := expr.(hclsyntax.Node)
	if !ok {
		return "of JSON"
	}
	found := ""
	_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics { // the function returns none
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && found == "" {
			if _, known := m.functions[call.Name]; !known {
				found = call.Name
			}
		}
		return nil
	})
	return found
}

// standIn replaces what is unknown in v by something of its type: a word for a
// string, and nothing for a collection.
func standIn(v cty.Value) cty.Value {
	stood, err := cty.Transform(v, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		return emptyOf(v.Type()), nil
	})
	if err != nil {
		return v
	}
	return stood
}

func emptyOf(t cty.Type) cty.Value {
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
			attributes[name] = emptyOf(of)
		}
		return cty.ObjectVal(attributes)
	}
	return cty.NullVal(t)
}
