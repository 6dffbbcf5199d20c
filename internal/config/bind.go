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

// binding is where one variable of one stage gets its value: an expression of
// stage.hcl or cluster.hcl, or a value that is known already.
type binding struct {
	expr  hcl.Expression // nil where value holds
	value cty.Value
	needs []need // the stages whose outputs expr reads
	// written is where the value stands; its Name and Value are left open.
	written Written
}

// bind gives every variable of the stage its value's origin, by precedence.
func (l *loader) bind(s *Stage) {
	l.checkInputs(s, s.entry.stage.inputs)
	l.checkInputs(s, s.definition.stage.inputs)
	for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
		s.bindings[name] = l.binding(s, s.Variables[name])
	}
}

func (l *loader) binding(s *Stage, v Variable) *binding {
	if x, ok := lookup(l.given.above, v.Name); ok {
		l.checkWired(s, v.Name)
		return l.settled(x, v)
	}
	if in, ok := s.entry.stage.inputs[v.Name]; ok {
		return in.binding()
	}
	if in, ok := s.definition.stage.inputs[v.Name]; ok {
		l.checkWired(s, v.Name)
		return in.binding()
	}
	if x, ok := lookup(l.given.below, v.Name); ok {
		return l.settled(x, v)
	}
	if v.Required {
		l.missing[v.Name] = append(l.missing[v.Name], s)
		return &binding{value: cty.UnknownVal(v.Type), written: Written{at: v.declared}}
	}
	return &binding{value: v.fallback, written: Written{at: v.declared}}
}

func (in input) binding() *binding {
	return &binding{expr: in.expr, written: Written{at: in.at, expr: in.expr}}
}

func (l *loader) settled(x value, v Variable) *binding {
	settled, diags := x.settle(v)
	l.report(diags...)
	return &binding{value: settled, written: x.written()}
}

func lookup(values []map[string]value, name string) (value, bool) {
	for _, m := range values {
		if x, ok := m[name]; ok {
			return x, true
		}
	}
	return value{}, false
}

// checkWired reports a file's value for a variable that stage.hcl wires: it
// would be ignored without a word, unless another stage takes it.
func (l *loader) checkWired(s *Stage, name string) {
	wired, ok := s.definition.stage.inputs[name]
	_, overridden := s.entry.stage.inputs[name]
	if !ok || overridden || slices.ContainsFunc(l.cluster.Stages, func(other *Stage) bool { return other.takes(name) }) {
		return
	}
	for _, values := range l.given.below {
		if x, ok := values[name]; ok {
			l.report(problem(x.at, fmt.Sprintf("variable %s: set here, but stage %s wires it", name, s.Name),
				"%s sets it for the stage, and this value would be ignored. To override the wiring, write inputs = { %s = … } in stage %q of %s; else remove this line.",
				place(wired.at), name, s.Name, l.file("cluster.hcl")))
		}
	}
}

// takes reports whether the stage leaves a variable to the files.
func (s *Stage) takes(name string) bool {
	_, declared := s.Variables[name]
	_, wired := s.definition.stage.inputs[name]
	_, overridden := s.entry.stage.inputs[name]
	return declared && !wired && !overridden
}

func (l *loader) checkInputs(s *Stage, inputs map[string]input) {
	if len(s.Variables) == 0 && s.definition.diags.HasErrors() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if _, ok := s.Variables[name]; !ok {
			l.report(problem(inputs[name].at, fmt.Sprintf("stage %s: unknown input %s", s.Name, name),
				"The module %s declares no variable of this name%s", s.Source, orStop(DidYouMean(name, slices.Collect(maps.Keys(s.Variables))))))
		}
	}
}

func (l *loader) reportMissing() {
	for _, name := range slices.Sorted(maps.Keys(l.missing)) {
		var stages []string
		for _, s := range l.missing[name] {
			stages = append(stages, s.Name)
		}
		v := l.missing[name][0].Variables[name]
		where := "Set it in " + l.file("terraform.tfvars")
		if v.Sensitive {
			where = fmt.Sprintf("It is sensitive: set it in %s (mode 0600) or as TF_VAR_%s", l.file("secrets.tfvars"), name)
		}
		noun := "stage "
		if len(stages) > 1 {
			noun = "stages "
		}
		l.report(problem(v.declared, "variable "+name+": no value", "It is required by %s%s. %s.", noun, strings.Join(stages, ", "), where))
	}
}

// settle converts a value to what the variable holds.
func (v Variable) settle(x cty.Value) (cty.Value, error) {
	if x.IsNull() && !v.nullable {
		if v.Required {
			return cty.NilVal, errors.New("null is not allowed")
		}
		return v.fallback, nil
	}
	return v.constraint.convert(x)
}
