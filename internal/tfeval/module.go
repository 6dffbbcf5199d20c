// Package tfeval evaluates a stage's Terraform offline: locals, the arguments of blocks, outputs, validations
// and the objects that resources make. A module is evaluated with the values of its variables that are known
// before a run, and with Terraform's own pure functions; any other expression is unknown. Data sources are
// unknown until SetData gives their results. Files in JSON syntax are not read.
package tfeval

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

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
	evaluated map[string]cty.Value // locals; NilVal while one is being evaluated
}

// UnknownError names the first thing that an expression needs and that is not known before a run.
type UnknownError struct{ What string }

func (e *UnknownError) Error() string { return e.What + " is not known before a run" }

// Read reads a stage's module; the values of variables may be unknown.
func Read(s *config.Stage, variables map[string]cty.Value) *Module {
	return newModule(s, variables, s.TerraformFiles())
}

// ReadContract reads the files of a library stage that declare one of these variables: parsing all of
// them takes longer than everything else that a small cluster's check does.
func ReadContract(library fs.FS, source string, variables map[string]cty.Value) *Module {
	declares := func(file []byte) bool {
		for name := range variables {
			if bytes.Contains(file, fmt.Appendf(nil, "variable %q", name)) {
				return true
			}
		}
		return false
	}
	return readFiles(library, path.Join(source, "variables*.tf"), "<embedded>/stages/", variables, declares)
}

// ReadFolder reads a root module as Terraform finds it in a folder.
func ReadFolder(folder fs.FS, variables map[string]cty.Value) *Module {
	return readFiles(folder, "*.tf", "", variables, func([]byte) bool { return true })
}

func readFiles(folder fs.FS, pattern, place string, variables map[string]cty.Value,
	wanted func(file []byte) bool) *Module {
	var files []*hcl.File
	names, _ := fs.Glob(folder, pattern) // the pattern is well-formed
	for _, name := range names {
		data, err := fs.ReadFile(folder, name)
		if err != nil || !wanted(data) {
			continue
		}
		if f, diags := hclsyntax.ParseConfig(data, place+name, hcl.InitialPos); !diags.HasErrors() {
			files = append(files, f)
		}
	}
	return newModule(&config.Stage{}, variables, files)
}

func newModule(s *config.Stage, variables map[string]cty.Value, files []*hcl.File) *Module {
	m := &Module{
		stage: s, locals: map[string]hcl.Expression{}, variables: variables, functions: functions(),
		evaluated: map[string]cty.Value{}, resources: map[string]map[string]cty.Value{},
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
	m.data, m.evaluated = cty.ObjectVal(objectsOf(results)), map[string]cty.Value{}
}

func objectsOf(all map[string]map[string]cty.Value) map[string]cty.Value {
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
	scope := objectsOf(m.resources)
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
		case root == "local":
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
	v, started := m.evaluated[name]
	if m.locals[name] == nil || started && v == cty.NilVal {
		return cty.DynamicVal, &UnknownError{"local." + name}
	} else if started {
		return v, nil
	}
	m.evaluated[name] = cty.NilVal
	v, err := m.Evaluate(m.locals[name], nil)
	if m.evaluated[name] = v; err != nil {
		delete(m.evaluated, name) // it may be known later
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

// Block is one instance of a resource, a data source or a provider.
type Block struct {
	Type, Name string // the labels; a provider has one only, which is both
	Key        string // of for_each
	Err        error  // why the instances of the block are not known; the other fields then speak of all

	each   map[string]cty.Value
	block  *hclsyntax.Block
	module *Module
}

// Range is where the block is declared.
func (b Block) Range() hcl.Range { return b.block.DefRange() }

// Value evaluates an argument; NilVal if the block does not have it.
func (b Block) Value(argument string) (cty.Value, error) { return b.in(b.block.Body, argument) }

func (b Block) in(body *hclsyntax.Body, argument string) (cty.Value, error) {
	attr := body.Attributes[argument]
	if attr == nil {
		return cty.NilVal, nil
	}
	return b.module.Evaluate(attr.Expr, b.each)
}

// Text is an argument that is a string; "" if it is not known or not set.
func (b Block) Text(argument string) string { return b.textIn(b.block.Body, argument) }

func (b Block) textIn(body *hclsyntax.Body, argument string) string {
	v, _ := b.in(body, argument) // unknown after an error
	return Text(v)
}

// Instances lists the instances of the blocks of a kind (resource, data, provider) and a type; the empty type
// stands for all. Where for_each is not known, a block with Err stands for them.
func (m *Module) Instances(kind, typ string) []Block {
	var all []Block
	for _, b := range m.Blocks {
		if b.Type == kind && len(b.Labels) > 0 && (typ == "" || b.Labels[0] == typ) {
			all = append(all, m.instances(b)...)
		}
	}
	return all
}

// Ignores reports whether Terraform leaves a resource as it is, whatever changes: ignore_changes = all.
func (m *Module) Ignores(typ, name string) bool {
	return slices.ContainsFunc(m.Blocks, func(b *hclsyntax.Block) bool {
		return b.Type == "resource" && slices.Equal(b.Labels, []string{typ, name}) &&
			slices.ContainsFunc(b.Body.Blocks, func(lifecycle *hclsyntax.Block) bool {
				changes := lifecycle.Body.Attributes["ignore_changes"]
				return changes != nil && hcl.ExprAsKeyword(changes.Expr) == "all"
			})
	})
}

// Known lists the instances that are known.
func (m *Module) Known(kind, typ string) []Block {
	return slices.DeleteFunc(m.Instances(kind, typ), func(b Block) bool { return b.Err != nil })
}

func (m *Module) instances(b *hclsyntax.Block) []Block {
	one := Block{Type: b.Labels[0], Name: b.Labels[len(b.Labels)-1], block: b, module: m}
	count, err := one.Value("count")
	if n, ok := Whole(count); err == nil && ok && n == 0 {
		return nil
	}
	if b.Body.Attributes["for_each"] == nil {
		return []Block{one}
	}
	v, err := one.Value("for_each")
	if err == nil && (!v.IsKnown() || v.IsNull() || !v.CanIterateElements()) {
		err = &UnknownError{"for_each"}
	}
	if one.Err = err; err != nil {
		return []Block{one}
	}
	var all []Block
	for it := v.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if one.Key = Text(key); one.Key == "" {
			one.Key = fmt.Sprint(len(all))
		}
		one.each = map[string]cty.Value{
			"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": value}),
		}
		all = append(all, one)
	}
	return all
}

// Local is a local value; unknown if there is none.
func (m *Module) Local(name string) cty.Value {
	v, _ := m.local(name) // unknown after an error
	return v
}

// Outputs are the stages' outputs, by layer, that follow from the values and from known ones, which stay.
func Outputs(stages []*config.Stage, known map[string]map[string]cty.Value) map[string]map[string]cty.Value {
	all := map[string]map[string]cty.Value{}
	for layer, outputs := range known {
		all[layer] = maps.Clone(outputs)
	}
	seen := map[*config.Stage]bool{}
	var add func(stages []*config.Stage)
	add = func(stages []*config.Stage) {
		for _, s := range stages {
			if seen[s] {
				continue
			}
			seen[s] = true
			add(s.Needs)
			m := Read(s, s.KnownInputs(all, nil))
			m.Objects() // whose names the outputs may read
			outputs := m.Outputs()
			maps.Copy(outputs, all[s.Layer])
			all[s.Layer] = outputs
		}
	}
	add(stages)
	return all
}

// Outputs are the outputs whose values are known.
func (m *Module) Outputs() map[string]cty.Value {
	all := map[string]cty.Value{}
	for _, b := range m.Instances("output", "") {
		if v, err := b.Value("value"); err == nil && v != cty.NilVal && v.IsWhollyKnown() {
			all[b.Name] = v
		}
	}
	return all
}
