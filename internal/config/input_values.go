package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// binding is the source of one variable of a stage: an expression of stage.hcl or
// cluster.hcl, or a value.
type binding struct {
	expr    hcl.Expression // nil where value holds
	value   cty.Value
	needs   []need  // the stages whose outputs expr reads
	written Written // without Name and Value
}

// bind binds every variable of the stage, by precedence.
func (r *inputValues) bind(s *Stage) {
	r.checkInputs(s, s.entry.settings.inputs)
	r.checkInputs(s, s.definition.settings.inputs)
	for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
		s.bindings[name] = r.binding(s, s.Variables[name])
	}
}

func (r *inputValues) binding(s *Stage, v Variable) *binding {
	if x, ok := lookup(r.above, v.Name); ok {
		r.checkWired(s, v.Name)
		return r.settled(x, v)
	}
	if in, ok := s.entry.settings.inputs[v.Name]; ok {
		return in.binding()
	}
	if in, ok := s.definition.settings.inputs[v.Name]; ok {
		r.checkWired(s, v.Name)
		return in.binding()
	}
	if x, ok := lookup(r.below, v.Name); ok {
		return r.settled(x, v)
	}
	b := &binding{value: v.fallback, written: Written{at: v.declared}}
	if v.Required {
		r.missing[v.Name] = append(r.missing[v.Name], s)
		b.value = cty.UnknownVal(v.Type)
	}
	return b
}

func (in input) binding() *binding {
	return &binding{expr: in.expr, written: Written{at: in.at, expr: in.expr}}
}

func (r *inputValues) settled(x value, v Variable) *binding {
	settled, diags := x.settle(v)
	r.load.report(diags...)
	return &binding{value: settled, written: x.written}
}

func lookup(values []map[string]value, name string) (value, bool) {
	for _, m := range values {
		if x, ok := m[name]; ok {
			return x, true
		}
	}
	return value{}, false
}

// checkWired reports a file's value for a variable that stage.hcl wires, which would be
// ignored, unless another stage takes it.
func (r *inputValues) checkWired(s *Stage, name string) {
	wired, ok := s.definition.settings.inputs[name]
	_, overridden := s.entry.settings.inputs[name]
	takes := func(other *Stage) bool { return other.takes(name) }
	if !ok || overridden || slices.ContainsFunc(r.load.cluster.Stages, takes) {
		return
	}
	for _, values := range r.below {
		if x, ok := values[name]; ok {
			r.load.problem(x.at, fmt.Sprintf("variable %s: set here, but stage %s wires it", name, s.Name),
				"%s sets it for the stage, and this value would be ignored. To override the wiring, write "+
					"inputs = { %s = … } in stage %q of %s; else remove this line.",
				place(wired.at), name, s.Name, r.load.file("cluster.hcl"))
		}
	}
}

// takes reports whether the stage leaves a variable to the files.
func (s *Stage) takes(name string) bool {
	_, declared := s.Variables[name]
	_, wired := s.definition.settings.inputs[name]
	_, overridden := s.entry.settings.inputs[name]
	return declared && !wired && !overridden
}

func (r *inputValues) checkInputs(s *Stage, inputs map[string]input) {
	if len(s.Variables) == 0 && s.definition.diags.HasErrors() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if _, ok := s.Variables[name]; !ok {
			r.load.problem(inputs[name].at, fmt.Sprintf("stage %s: unknown input %s", s.Name, name),
				"The module %s declares no variable of this name%s", s.Source,
				orStop(DidYouMean(name, slices.Collect(maps.Keys(s.Variables)))))
		}
	}
}

func (r *inputValues) reportMissing() {
	for _, name := range slices.Sorted(maps.Keys(r.missing)) {
		var stages []string
		for _, s := range r.missing[name] {
			stages = append(stages, s.Name)
		}
		v := r.missing[name][0].Variables[name]
		where := "Set it in " + r.load.file("terraform.tfvars")
		if v.Sensitive {
			where = fmt.Sprintf("It is sensitive: set it in %s (mode 0600) or as TF_VAR_%s",
				r.load.file("secrets.tfvars"), name)
		}
		noun := "stage "
		if len(stages) > 1 {
			noun = "stages "
		}
		r.load.problem(v.declared, "variable "+name+": no value", "It is required by %s%s. %s.", noun,
			strings.Join(stages, ", "), where)
	}
}

// settle converts a value to the type of the variable.
func (v Variable) settle(x cty.Value) (cty.Value, error) {
	if x.IsNull() && !v.nullable {
		if v.Required {
			return cty.NilVal, errors.New("null is not allowed")
		}
		return v.fallback, nil
	}
	return v.constraint.convert(x)
}

// bindGates binds only the variables that the gates of a disabled stage name: castle does not apply the
// stage, so nothing else needs a value.
func (r *inputValues) bindGates(s *Stage) {
	r.checkInputs(s, s.entry.settings.inputs)
	var bind func(expr hcl.Expression)
	bind = func(expr hcl.Expression) {
		for _, ref := range references(expr) {
			v, declared := s.Variables[ref.name]
			if ref.root != "var" || !declared || s.bindings[ref.name] != nil {
				continue
			}
			b := r.binding(s, v)
			s.bindings[ref.name] = b
			if b.expr != nil {
				bind(b.expr)
			}
		}
	}
	for _, g := range s.Gates {
		for _, name := range slices.Sorted(maps.Keys(g.block.args)) {
			bind(g.block.args[name])
		}
	}
}
