// Package tfeval evaluates a stage's Terraform offline: locals, the arguments of
// blocks, outputs, validations and the objects that resources make.
//
// A module is evaluated with the values of its variables that are known before a run, and with Terraform's
// own pure functions. An expression that needs more is unknown, such as a resource's attribute or a function
// that tfeval lacks, and nothing is concluded from it. Data sources are unknown until SetData gives their
// results. Files in JSON syntax are not read.
package tfeval

import (
	"fmt"
	"io/fs"
	"maps"
	"path"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/ephemeral-castle/castle/internal/config"
)

// Module is a stage's Terraform with values for its variables.
type Module struct {
	Blocks []*hclsyntax.Block // as they are written

	stage     *config.Stage
	locals    map[string]hcl.Expression
	variables map[string]cty.Value
	data      cty.Value                       // results of data sources; NilVal: none are known
	resources map[string]map[string]cty.Value // by type and name, as far as objects are known
	functions map[string]function.Function
	evaluated map[string]cty.Value // locals
	pending   map[string]bool      // locals that are being evaluated
}

// UnknownError names the first thing that an expression needs and that is not known before a run.
type UnknownError struct{ What string }

func (e *UnknownError) Error() string { return e.What + " is not known before a run" }

// Read reads a stage's module; the values of variables may be unknown.
func Read(s *config.Stage, variables map[string]cty.Value) *Module {
	return newModule(s, variables, s.TerraformFiles())
}

// ReadContract reads the variables of a library stage with the values that other
// stages give to variables of these names.
func ReadContract(library fs.FS, source string, variables map[string]cty.Value) *Module {
	var files []*hcl.File
	names, _ := fs.Glob(library, path.Join(source, "variables*.tf")) // the pattern is well-formed
	for _, name := range names {
		data, err := fs.ReadFile(library, name)
		if err != nil {
			continue
		}
		f, diags := hclsyntax.ParseConfig(data, "<embedded>/stages/"+name, hcl.InitialPos)
		if !diags.HasErrors() {
			files = append(files, f)
		}
	}
	return newModule(&config.Stage{}, variables, files)
}

func newModule(s *config.Stage, variables map[string]cty.Value, files []*hcl.File) *Module {
	m := &Module{
		stage: s, locals: map[string]hcl.Expression{}, variables: variables, functions: functions(),
		evaluated: map[string]cty.Value{}, pending: map[string]bool{},
		resources: map[string]map[string]cty.Value{},
	}
	for _, f := range files {
		if body, native := f.Body.(*hclsyntax.Body); native {
			m.Blocks = append(m.Blocks, body.Blocks...)
		}
	}
	for _, b := range m.Blocks {
		for name, attr := range b.Body.Attributes {
			if b.Type == "locals" {
				m.locals[name] = attr.Expr
			}
		}
	}
	return m
}

// With returns the module with another value for a variable.
func (m *Module) With(variable string, value cty.Value) *Module {
	changed := *m
	changed.variables = maps.Clone(m.variables)
	changed.variables[variable] = value
	changed.evaluated = map[string]cty.Value{}
	return &changed
}

// SetData gives the results of data sources, by type and name.
func (m *Module) SetData(results map[string]map[string]cty.Value) {
	m.data, m.evaluated = cty.ObjectVal(objects(results)), map[string]cty.Value{}
}

func objects(all map[string]map[string]cty.Value) map[string]cty.Value {
	types := map[string]cty.Value{}
	for of, named := range all {
		types[of] = cty.ObjectVal(named)
	}
	return types
}

// Evaluate returns the value of an expression; extra are further names, such as each.
// The error is an *UnknownError where the expression needs more than is known.
func (m *Module) Evaluate(expr hcl.Expression, extra map[string]cty.Value) (cty.Value, error) {
	if name := missingFunction(m, expr); name != "" {
		return cty.DynamicVal, &UnknownError{"function " + name}
	}
	scope := objects(m.resources)
	scope["path"] = cty.ObjectVal(map[string]cty.Value{"module": cty.StringVal(".")})
	if m.data != cty.NilVal {
		scope["data"] = m.data
	}
	maps.Copy(scope, extra)
	locals, variables := map[string]cty.Value{}, map[string]cty.Value{}
	for _, t := range expr.Variables() {
		root, name := t.RootName(), second(t)
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
			if _, known := scope[root]; !known {
				return cty.DynamicVal, &UnknownError{root + "." + name}
			}
		}
	}
	scope["local"], scope["var"] = cty.ObjectVal(locals), cty.ObjectVal(variables)
	v, diags := expr.Value(&hcl.EvalContext{Functions: m.functions, Variables: scope})
	if diags.HasErrors() {
		// Without the expression's values, which may be secret.
		at := diags[0].Subject
		return cty.DynamicVal, fmt.Errorf("%s:%d: %s", at.Filename, at.Start.Line, diags[0].Summary)
	}
	return v, nil
}

// second is the name after the root: region in var.region.
func second(t hcl.Traversal) string {
	if len(t) > 1 {
		if step, ok := t[1].(hcl.TraverseAttr); ok {
			return step.Name
		}
	}
	return ""
}

func (m *Module) local(name string) (cty.Value, error) {
	if v, ok := m.evaluated[name]; ok {
		return v, nil
	}
	if m.pending[name] {
		return cty.DynamicVal, &UnknownError{"local." + name}
	}
	m.pending[name] = true
	v, err := m.Evaluate(m.locals[name], nil)
	delete(m.pending, name)
	if err == nil {
		m.evaluated[name] = v
	}
	return v, err
}

// missingFunction names a function in expr that tfeval does not have. It must be
// found before evaluation: can() would turn its absence into false.
func missingFunction(m *Module, expr hcl.Expression) string {
	found := ""
	visit(expr, func(n hclsyntax.Node) {
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && found == "" {
			if _, known := m.functions[call.Name]; !known {
				found = call.Name
			}
		}
	})
	return found
}

// visit calls do for all nodes of an expression in native syntax, as all that are read are.
func visit(expr hcl.Expression, do func(hclsyntax.Node)) {
	_ = hclsyntax.VisitAll(expr.(hclsyntax.Node), func(n hclsyntax.Node) hcl.Diagnostics { // it returns none
		do(n)
		return nil
	})
}
