package config

import (
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
)

// ownOutputs notes which stage has which output of a layer.
func (l *loader) ownOutputs() {
	l.cluster.owners = make(map[string]map[string]*Stage)
	for _, layer := range Layers() {
		l.cluster.owners[layer] = make(map[string]*Stage)
	}
	for _, s := range l.cluster.Stages {
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			owners := l.cluster.owners[s.Layer]
			if first := owners[name]; first != nil {
				l.report(problem(s.Outputs[name].declared, "layer "+s.Layer+": two stages have output "+name,
					"Stage %s has it here and stage %s at %s; %s.%s could mean either.",
					s.Name, first.Name, place(first.Outputs[name].declared), s.Layer, name))
				continue
			}
			owners[name] = s
		}
	}
}

// checkTypes reports variables that share a name and not a type: one value cannot suit both.
func (l *loader) checkTypes() {
	first := make(map[string]Variable)
	for _, s := range l.cluster.Stages {
		for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
			v := s.Variables[name]
			if v.constraint.ty == cty.DynamicPseudoType {
				continue
			}
			other, ok := first[name]
			if !ok {
				first[name] = v
				continue
			}
			if !v.constraint.ty.Equals(other.constraint.ty) {
				l.report(problem(v.declared, "variable "+name+": two types", "It is %s here and %s at %s; variables of one name share their value. Give one of them another name.",
					v.constraint, other.constraint, place(other.declared)))
			}
		}
	}
}
